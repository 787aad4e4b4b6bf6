"""Several autoscalers: one wishes, drains and carries out; whoever was paused or cut off changes nothing."""

from __future__ import annotations

import msgspec
import pytest

from services.autoscaler.app import Autoscaler
from services.autoscaler.carrying import Carrier
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.io.desk import Desk
from services.autoscaler.io.heard import Heard
from services.autoscaler.io.meters import Meters
from services.autoscaler.lookout import AutoscalerPolicy, Lookout
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.contracts.catalog import DRAIN, FLEET_METRICS, LEASE, SCALE_WISH
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger, Superseded
from shared.messages.desired import ScaleWish
from shared.messages.reports import FleetMetrics
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from shared.ttft_by_customer import TtftByCustomer, TtftPolicy
from tests.simulation.speakers import POOL, Replica
from tests.support.paper_actuator import PaperActuator

HASTY = AutoscalerPolicy(
    scale=msgspec.structs.replace(ScalePolicy(), pace=msgspec.structs.replace(ScalePolicy().pace, down_hold_s=10.0))
)


class One:
    """An autoscaler, as its `__main__` wires it; they all share one actuator, as they would a cluster."""

    def __init__(self, bus: MemoryBus, clock: ManualClock, actuator: PaperActuator, name: str) -> None:
        self.bus = bus
        self.leader = Leader(bus.state(LEASE), clock, role="autoscaler", holder=name)
        self.metrics = Metrics("autoscaler")
        meters = Meters(self.metrics)
        self.desk = Desk(bus, self.leader, Ledger("scale_wish", bus.state(SCALE_WISH), self.leader.may_act))
        self.carrier = Carrier(actuator, clock, meters, self.leader.may_act)
        heard = Heard(bus, clock, HASTY.windows, TtftByCustomer(TtftPolicy()), follow_customers=False)
        lookout = Lookout(clock, HASTY, heard, self.carrier)
        self.app = Autoscaler(clock, HASTY, lookout, self.desk, meters)

    async def turn(self) -> None:
        await self.leader.turn()
        await self.app.turn()
        await self.carrier.turn()

    def shows(self, *names: str) -> list[str]:
        """Lines of its metrics, without their prefix."""
        lines = self.metrics.exposition().decode().splitlines()
        shown = [line.removeprefix("lorafleet_autoscaler_") for line in lines if not line.startswith("#")]
        return sorted((line for line in shown if line.startswith(names)), reverse=True)


class Stage:
    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.console = self.broker.connect("console")
        self.replicas = {name: Replica(self.broker.connect("replica_worker"), name) for name in ("r1", "r2")}
        self.actuator = PaperActuator()
        self.actuator.there[POOL] = {"r1", "r2"}
        self.running: list[One] = []
        self.heard: list[FleetMetrics] = []

    async def start(self, count: int) -> None:
        await self.console.subscribe(FLEET_METRICS, self._on_metrics)
        for number in range(count):
            one = One(self.broker.connect("autoscaler"), self.clock, self.actuator, f"a{number + 1}")
            await one.app.start()
            self.running.append(one)

    async def seconds(self, count: int, running: int = 1) -> None:
        for _ in range(count):
            for replica in self.replicas.values():
                await replica.report(running=running)
            await self.clock.advance(1.0)
            for one in self.running:
                await one.turn()
            await self.clock.advance(0.0)

    async def wish(self) -> ScaleWish:
        found = await self.console.state(SCALE_WISH).get(POOL)
        assert found is not None
        assert found.value is not None
        return found.value

    async def drains(self) -> dict[str, int]:
        entries = await self.broker.connect("placement").state(DRAIN).entries()
        return {entry.ids[0]: entry.value.epoch for entry in entries if entry.value}

    def revisions(self) -> list[int]:
        buckets = [self.broker.buckets[channel.name] for channel in (SCALE_WISH, DRAIN)]
        return [stored.revision for bucket in buckets for stored in bucket.stored.values()]

    async def _on_metrics(self, message: FleetMetrics, ids: tuple[str, ...]) -> None:
        self.heard.append(message)


async def test_one_of_two_speaks_and_the_other_is_ready() -> None:
    stage = Stage()
    await stage.start(2)
    await stage.seconds(6)
    assert [one.app.status() for one in stage.running] == ["leads with epoch 1", "stands by"]
    assert [one.app.unready_reason() for one in stage.running] == [None, None]
    assert [fleet.sequence for fleet in stage.heard] == [1, 2, 3, 4, 5]
    assert (await stage.wish()).epoch == 1


async def test_a_drain_goes_on_under_whoever_takes_over() -> None:
    stage = Stage()
    await stage.start(2)
    await stage.seconds(14)
    assert await stage.drains() == {"r1": 1}
    stage.running.pop(0)
    await stage.seconds(5)
    wish = await stage.wish()
    assert (wish.epoch, wish.desired, wish.drain) == (2, 1, ("r1",))
    assert await stage.drains() == {"r1": 1}


async def test_one_that_leads_no_more_shows_no_figures_of_pools() -> None:
    """Whoever follows the largest of them would follow a wish of yesterday."""
    stage = Stage()
    await stage.start(2)
    await stage.seconds(4)
    first, second = stage.running
    assert first.shows("leads", "replicas_to_run") == [f'replicas_to_run{{pool="{POOL}"}} 2.0', "leads 1.0"]
    stage.broker.disconnect(first.bus)
    await stage.seconds(5)
    assert (first.app.status(), second.app.status()) == ("stands by", "leads with epoch 2")
    assert first.shows("leads", "replicas_to_run") == ["leads 0.0"]
    assert second.shows("leads", "replicas_to_run") == [f'replicas_to_run{{pool="{POOL}"}} 2.0', "leads 1.0"]


async def test_after_a_short_outage_of_the_bus_the_leader_goes_on_with_what_it_knew() -> None:
    stage = Stage()
    await stage.start(1)
    [only] = stage.running
    await stage.seconds(4)
    stage.broker.disconnect(only.bus)
    await stage.seconds(4)
    assert (only.app.status(), only.shows("leads")) == ("stands by", ["leads 0.0"])
    stage.broker.reconnect(only.bus)
    await stage.seconds(4)
    assert (only.app.status(), only.shows("leads")) == ("leads with epoch 1", ["leads 1.0"])
    assert stage.heard[-1].pools[0].reason != "2 replicas were there when the autoscaler began"


async def test_a_clean_stop_hands_over_at_once() -> None:
    stage = Stage()
    await stage.start(2)
    await stage.seconds(4)
    first = stage.running.pop(0)
    await first.app.stop()
    await first.leader.stop()
    await stage.seconds(1)
    assert (await stage.wish()).epoch == 2


async def test_one_that_was_paused_says_nothing_and_orders_nothing() -> None:
    stage = Stage()
    await stage.start(2)
    await stage.seconds(4)
    paused = stage.running.pop(0)
    await stage.seconds(5)
    heard, before, orders = len(stage.heard), stage.revisions(), len(stage.actuator.orders)
    await paused.carrier.turn()
    await paused.app.turn()
    await paused.turn()
    await stage.clock.advance(0.0)
    assert (len(stage.heard), stage.revisions(), len(stage.actuator.orders)) == (heard, before, orders)
    assert paused.app.status() == "stands by"


async def test_one_whose_clock_stood_still_cannot_change_the_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own clock it has just renewed the lease; the record knows better."""
    stage = Stage()
    await stage.start(2)
    await stage.seconds(9)
    asleep = stage.running.pop(0)
    await stage.seconds(5)
    before = await stage.wish()
    now_s = stage.clock.now_s()
    monkeypatch.setattr(stage.clock, "now_s", lambda: now_s - 4.0)
    assert asleep.leader.may_act(1)
    with pytest.raises(Superseded, match="epoch 2; this one has 1"):
        await asleep.desk.wish(ScaleWish(pool_id=POOL, desired=9, reason="late", epoch=1))
    assert (await stage.wish(), before.epoch) == (before, 2)
