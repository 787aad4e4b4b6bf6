"""The shell: a message each second whatever falls silent, and a wish on the bus when it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.autoscaler.app import Autoscaler, AutoscalerPolicy
from services.autoscaler.io.meters import Meters
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import FLEET_METRICS, GATEWAY_REPORT, SCALE_WISH
from shared.messages.desired import ScaleWish
from shared.messages.reports import FleetMetrics, GatewayReport
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from tests.simulation.speakers import POOL, Replica


class Stage:
    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.bus = self.broker.connect("autoscaler")
        self.metrics = Metrics("autoscaler")
        self.autoscaler = Autoscaler(self.bus, self.clock, AutoscalerPolicy(), Meters(self.metrics))
        self.console = self.broker.connect("console")
        self.replicas = {name: Replica(self.broker.connect("replica_worker"), name) for name in ("r1", "r2")}
        self.heard: list[FleetMetrics] = []
        self.wishes: list[ScaleWish] = []

    async def start(self) -> None:
        await self.console.subscribe(FLEET_METRICS, self._on_metrics)
        await self.console.state(SCALE_WISH).watch(self._on_wish)
        await self.autoscaler.start()

    async def seconds(self, count: int, *silent: str, **said: Any) -> None:
        for _ in range(count):
            for name, replica in self.replicas.items():
                if name not in silent:
                    await replica.report(**said)
            await self.clock.advance(1.0)
            await self.autoscaler.turn()
            await self.clock.advance(0.0)

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


async def test_fleet_metrics_go_out_each_second_once_the_view_has_filled(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(1)
    assert (stage.heard, stage.autoscaler.unready_reason()) == ([], "its view of the fleet has not filled yet")
    await stage.seconds(4)
    assert [fleet.sequence for fleet in stage.heard] == [1, 2, 3, 4]
    assert [fleet.at_s for fleet in stage.heard] == [2.0, 3.0, 4.0, 5.0]
    (pool,) = stage.heard[-1].pools
    assert (pool.pool_id, pool.replicas, pool.ready, pool.desired) == (POOL, 2, 2, 2)


async def test_a_silent_replica_is_named_and_holds_nothing_up(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(2, queue_depth=1, tokens_in_flight=5_000)
    await stage.seconds(4, "r2")
    fleet = stage.heard[-1]
    assert (fleet.replicas_silent, len(stage.heard)) == (("r2",), 5)
    assert (fleet.pools[0].replicas, fleet.pools[0].ready, fleet.pools[0].queue_depth) == (2, 1, 0)
    await stage.seconds(30, "r2")
    assert stage.heard[-1].replicas_silent == ()
    assert stage.heard[-1].pools[0].replicas == 1


async def test_gateways_count_while_they_are_heard(stage: Stage) -> None:
    await stage.start()
    gateway = stage.broker.connect("gateway")
    for name, streams in (("g1", 3), ("g2", 4)):
        said = GatewayReport(gateway_id=name, sequence=1, streams=streams, requests=9, refused=0, tokens=50)
        await gateway.publish(GATEWAY_REPORT, said, name)
    await stage.seconds(2)
    assert (stage.heard[-1].gateways, stage.heard[-1].streams) == (2, 7)
    await stage.seconds(3)
    assert (stage.heard[-1].gateways, stage.heard[-1].streams) == (0, 0)


async def test_a_wish_is_written_when_it_changes_and_not_before(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(5)
    assert [wish.desired for wish in stage.wishes] == [2]
    await stage.seconds(3, running=32)
    assert [wish.desired for wish in stage.wishes] == [2, 3]
    assert stage.wishes[-1].reason == "64 running requests at 26 a replica"
    assert stage.heard[-1].pools[0].desired == 3
    assert b'lorafleet_autoscaler_desired_replicas{pool="' + POOL.encode() + b'"} 3.0' in stage.metrics.exposition()


async def test_the_wish_on_record_is_taken_up_after_a_restart(stage: Stage) -> None:
    await stage.bus.state(SCALE_WISH).put(ScaleWish(pool_id=POOL, desired=7, reason="before"), POOL)
    await stage.start()
    await stage.seconds(3)
    assert stage.heard[-1].pools[0].desired == 7
    assert [wish.reason for wish in stage.wishes] == ["before"]


async def test_a_bus_that_is_away_costs_seconds_and_not_the_service(stage: Stage) -> None:
    await stage.start()
    await stage.seconds(2)
    stage.broker.disconnect(stage.bus)
    await stage.seconds(3)
    assert stage.autoscaler.unready_reason() == "the bus cannot be reached"
    stage.broker.reconnect(stage.bus)
    await stage.seconds(2)
    assert (stage.heard[-1].pools[0].ready, stage.heard[-1].replicas_silent) == (2, ())
    assert stage.autoscaler.unready_reason() is None
