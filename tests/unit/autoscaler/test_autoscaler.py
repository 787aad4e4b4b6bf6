"""The shell: a message each second whatever falls silent, wishes and drains on the bus, and orders carried out."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.autoscaler.app import Autoscaler
from services.autoscaler.carrying import Carrier
from services.autoscaler.core.cost import CostPolicy
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.io.actuator import Actuator
from services.autoscaler.io.desk import Desk
from services.autoscaler.io.heard import OURS, Heard
from services.autoscaler.io.meters import Meters
from services.autoscaler.io.recommend import Recommend
from services.autoscaler.lookout import AutoscalerPolicy, Lookout
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import DRAIN, FLEET_METRICS, GATEWAY_ACTIVITY, GATEWAY_REPORT, LEASE, SCALE_WISH
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import DrainOrder, ScaleWish
from shared.messages.reports import FleetMetrics, GatewayReport
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from shared.ttft_by_customer import TtftByCustomer, TtftPolicy
from tests.simulation.speakers import POOL, Replica
from tests.support.paper_actuator import PaperActuator


class Stage:
    """Replicas that report each second, and an autoscaler that takes its turns; `begin` another one for a restart."""

    def __init__(self, actuator: Actuator | None = None, policy: AutoscalerPolicy | None = None) -> None:
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.console = self.broker.connect("console")
        self.gateway = self.broker.connect("gateway")
        self.replicas = {name: Replica(self.broker.connect("replica_worker"), name) for name in ("r1", "r2")}
        self.heard: list[FleetMetrics] = []
        self.wishes: list[ScaleWish] = []
        self.actuator = actuator or Recommend()
        self.policy = policy or AutoscalerPolicy()
        self.draining: set[str] = set()
        """Who says so."""
        self._said = 0
        self._names = itertools.count(1)
        self._create()

    def _create(self) -> None:
        self.bus = self.broker.connect("autoscaler")
        self.metrics = Metrics("autoscaler")
        meters = Meters(self.metrics)
        self.leader = Leader(self.bus.state(LEASE), self.clock, role="autoscaler", holder=f"a{next(self._names)}")
        desk = Desk(self.bus, self.leader, Ledger("scale_wish", self.bus.state(SCALE_WISH), self.leader.may_act))
        self.carrier = Carrier(self.actuator, self.clock, meters, self.leader.may_act)
        follows, ttft = self.policy.merged.enabled, TtftByCustomer(TtftPolicy())
        heard = Heard(self.bus, self.clock, self.policy.windows, ttft, follow_customers=follows)
        lookout = Lookout(self.clock, self.policy, heard, self.carrier)
        self.autoscaler = Autoscaler(self.clock, self.policy, lookout, desk, meters)

    async def start(self) -> None:
        await self.console.subscribe(FLEET_METRICS, self._on_metrics)
        await self.console.state(SCALE_WISH).watch(self._on_wish)
        await self.autoscaler.start()

    async def restart(self) -> None:
        await self.autoscaler.stop()
        await self.leader.stop()
        self._create()
        await self.autoscaler.start()

    async def seconds(self, count: int, *silent: str, **said: Any) -> None:
        for _ in range(count):
            for name, replica in self.replicas.items():
                if name not in silent:
                    await replica.report(draining=name in self.draining, **said)
            await self.clock.advance(1.0)
            await self.leader.turn()
            await self.autoscaler.turn()
            await self.carrier.turn()
            await self.clock.advance(0.0)

    async def ask(self, requests: int, **more: int) -> None:
        """A second of a gateway's activity, 100 tokens a request."""
        self._said += 1
        one = AdapterActivity(requests=requests, finished=requests, tokens=100 * requests)
        pool = PoolActivity(
            requests=requests, first_tokens=requests, tokens=100 * requests, adapters={"acme": one}, **more
        )  # fmt: skip
        said = GatewayActivity(gateway_id="g1", sequence=self._said, interval_s=1.0, pools={POOL: pool})
        await self.gateway.publish(GATEWAY_ACTIVITY, said, "g1")

    async def drained(self) -> dict[str, str]:
        # The console may not read orders; placement may.
        entries = await self.broker.connect("placement").state(DRAIN).entries()
        return {entry.ids[0]: entry.value.reason for entry in entries if entry.value}

    @property
    def pool(self) -> Any:
        (pool,) = self.heard[-1].pools
        return pool

    async def _on_metrics(self, message: FleetMetrics, ids: tuple[str, ...]) -> None:
        self.heard.append(message)

    async def _on_wish(self, change: Any) -> None:
        self.wishes.append(change.value)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.autoscaler.stop()
    await stage.console.close()


@pytest.fixture
async def acting() -> AsyncIterator[Stage]:
    """With an actuator that runs r1 and r2, and a policy that takes replicas away after ten seconds."""
    actuator = PaperActuator()
    actuator.there[POOL] = {"r1", "r2"}
    policy = AutoscalerPolicy(
        scale=msgspec.structs.replace(ScalePolicy(), pace=msgspec.structs.replace(ScalePolicy().pace, down_hold_s=10.0))
    )
    stage = Stage(actuator, policy)
    yield stage
    await stage.autoscaler.stop()
    await stage.console.close()


async def test_fleet_metrics_go_out_each_second_once_the_view_has_filled(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(1)
    assert (stage.heard, stage.autoscaler.unready_reason()) == ([], "its view of the fleet has not filled yet")
    await stage.seconds(4)
    assert [fleet.sequence for fleet in stage.heard] == [1, 2, 3, 4]
    assert [fleet.at_s for fleet in stage.heard] == [2.0, 3.0, 4.0, 5.0]
    assert (stage.pool.pool_id, stage.pool.replicas, stage.pool.ready, stage.pool.desired) == (POOL, 2, 2, 2)


async def test_a_silent_replica_is_named_and_holds_nothing_up(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(2, queue_depth=1, tokens_in_flight=5_000)
    await stage.seconds(4, "r2")
    fleet = stage.heard[-1]
    assert (fleet.replicas_silent, len(stage.heard)) == (("r2",), 5)
    assert (stage.pool.replicas, stage.pool.ready, stage.pool.queue_depth) == (2, 1, 0)
    await stage.seconds(30, "r2")
    assert stage.heard[-1].replicas_silent == ()
    assert stage.pool.replicas == 1


async def test_gateways_count_while_they_are_heard(stage: Stage) -> None:
    await stage.start()
    for name, streams in (("g1", 3), ("g2", 4)):
        said = GatewayReport(gateway_id=name, sequence=1, streams=streams, requests=9, refused=0, tokens=50)
        await stage.gateway.publish(GATEWAY_REPORT, said, name)
    await stage.seconds(2)
    assert (stage.heard[-1].gateways, stage.heard[-1].streams) == (2, 7)
    await stage.seconds(3)
    assert (stage.heard[-1].gateways, stage.heard[-1].streams) == (0, 0)


async def test_a_wish_is_written_when_it_changes_and_not_before(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(5)
    assert [wish.desired for wish in stage.wishes] == [2]
    await stage.seconds(90, running=32)
    assert [wish.desired for wish in stage.wishes] == [2, 3]
    assert stage.wishes[-1].reason.endswith("running requests at 29 a replica")
    assert stage.pool.desired == 3
    assert b'lorafleet_autoscaler_desired_replicas{pool="' + POOL.encode() + b'"} 3.0' in stage.metrics.exposition()


async def test_what_customers_ask_for_raises_the_wish_before_any_queue_does(stage: Stage) -> None:
    await stage.start()
    for _ in range(10):
        await stage.ask(18)
        await stage.seconds(1, capacity_tokens_per_s=640.0)
    assert (stage.pool.desired, stage.pool.queue_s) == (4, 0.0)
    assert stage.pool.reason.startswith("1823 tokens a second are asked for, at 512 a replica")
    assert stage.pool.capacity_tokens_per_s == 1280.0


async def test_metrics_say_what_the_tokens_cost() -> None:
    stage = Stage(policy=AutoscalerPolicy(cost=CostPolicy(usd_per_replica_hour=3.6)))
    await stage.start()
    for _ in range(5):
        await stage.ask(10, late_first_tokens=1)
        await stage.seconds(1)
    assert stage.pool.usd_per_hour == 7.2
    assert stage.pool.usd_per_million_tokens == pytest.approx(2.0, rel=0.02)
    assert stage.pool.late_share == pytest.approx(0.1)
    exposed = stage.metrics.exposition().decode()
    assert f'lorafleet_autoscaler_usd_per_hour{{pool="{POOL}"}} 7.2' in exposed
    await stage.autoscaler.stop()


async def test_a_fleet_that_others_scale_is_told_the_wish_and_nothing_is_drained(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(400)
    assert [wish.desired for wish in stage.wishes] == [2, 1]
    assert (stage.wishes[-1].drain, await stage.drained()) == ((), {})


async def test_orders_are_carried_out_and_told_again(acting: Stage) -> None:
    await acting.start()
    for _ in range(10):
        await acting.ask(18)
        await acting.seconds(1, capacity_tokens_per_s=640.0)
    actuator = acting.actuator
    assert isinstance(actuator, PaperActuator)
    assert actuator.there[POOL] == {"r1", "r2", "n1", "n2"}
    assert {order.desired for order in actuator.orders[-2:]} == {4}
    assert acting.pool.pending == 2


async def test_a_replica_drains_before_it_goes_and_its_order_goes_with_it(acting: Stage) -> None:
    await acting.start()
    await acting.seconds(14, running=1)
    assert list(await acting.drained()) == ["r1"]
    order = await acting.console.state(DRAIN).get("r1")
    assert order is not None
    assert order.value is not None
    assert not order.value.then_stop, "it would be gone before it could be taken back"
    assert (acting.wishes[-1].desired, acting.wishes[-1].drain) == (1, ("r1",))
    acting.draining = {"r1"}
    await acting.seconds(10, running=1)
    actuator = acting.actuator
    assert isinstance(actuator, PaperActuator)
    assert actuator.there[POOL] == {"r1", "r2"}
    await acting.seconds(2)
    assert actuator.there[POOL] == {"r2"}
    await acting.seconds(4, "r1")
    assert await acting.drained() == {}
    assert acting.wishes[-1].drain == ()


async def test_a_person_s_order_to_drain_is_left_alone(acting: Stage) -> None:
    drains = acting.console.state(DRAIN)
    await drains.put(DrainOrder(replica_id="r2", reason="maintenance"), "r2")
    await acting.start()
    await acting.seconds(30)
    assert await acting.drained() == {"r2": "maintenance"}
    assert acting.wishes[-1].drain == ()
    assert acting.pool.desired == 1


async def test_after_a_restart_wishes_and_drains_go_on(acting: Stage) -> None:
    await acting.start()
    await acting.seconds(14, running=1)
    assert list(await acting.drained()) == ["r1"]
    acting.draining = {"r1"}
    await acting.restart()
    await acting.seconds(4, running=1)
    assert list(await acting.drained()) == ["r1"]
    assert (acting.pool.desired, acting.wishes[-1].drain) == (1, ("r1",))


async def test_an_order_of_ours_that_nobody_remembers_is_taken_back(acting: Stage) -> None:
    await acting.bus.state(DRAIN).put(DrainOrder(replica_id="r9", reason=OURS + "long ago"), "r9")
    await acting.start()
    await acting.seconds(3)
    assert await acting.drained() == {}


async def test_an_actuator_that_fails_is_tried_again_and_decisions_go_on(
    acting: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    actuator = acting.actuator
    assert isinstance(actuator, PaperActuator)
    actuator.broken = "the cluster does not answer"
    await acting.start()
    for _ in range(40):
        await acting.ask(18)
        await acting.seconds(1, capacity_tokens_per_s=640.0)
    assert (len(acting.heard), acting.pool.desired, actuator.orders) == (39, 4, [])
    exposed = acting.metrics.exposition().decode()
    assert f'lorafleet_autoscaler_actuator_failures_total{{pool="{POOL}"}} 5.0' in exposed
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the pool's replicas could not be changed; it is tried again"
    ]
    actuator.broken = ""
    for _ in range(40):
        await acting.ask(18)
        await acting.seconds(1, capacity_tokens_per_s=640.0)
    assert len(actuator.there[POOL]) == 4


async def test_the_wish_on_record_is_taken_up_after_a_restart(stage: Stage) -> None:
    await stage.bus.state(SCALE_WISH).put(ScaleWish(pool_id=POOL, desired=7, reason="before"), POOL)
    await stage.start()
    await stage.seconds(3)
    assert stage.pool.desired == 7
    assert [(wish.desired, wish.epoch) for wish in stage.wishes] == [(7, 0), (7, 1)]


async def test_a_bus_that_is_away_costs_seconds_and_not_the_service(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(2)
    stage.broker.disconnect(stage.bus)
    await stage.seconds(3)
    assert stage.autoscaler.unready_reason() == "the bus cannot be reached"
    stage.broker.reconnect(stage.bus)
    await stage.seconds(3)
    assert (stage.pool.ready, stage.heard[-1].replicas_silent) == (2, ())
    assert stage.autoscaler.unready_reason() is None
