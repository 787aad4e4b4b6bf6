"""Placements, replicas that speak, and a clock that a test advances."""

from __future__ import annotations

from typing import Any

from services.placement.app import PlacementPolicy
from services.placement.core.tick import TickPolicy
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.contracts.catalog import ADAPTER, ASSIGNMENT, MEMBERSHIP, OWNER_COUNT
from shared.messages.desired import AdapterRecord, Member
from shared.messages.identity import key_of
from shared.runtime.clock import ManualClock
from tests.simulation.placing import Placing, placement_on
from tests.simulation.speakers import POOL, Replica, adapter


class Stage:
    """One broker, one clock, placements that take turns when they are told to."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.registry = self.broker.connect("registry")
        self.placements: list[Placing] = []
        self.buses: list[MemoryBus] = []
        self.replicas: dict[str, Replica] = {}

    async def place(self, **policy: Any) -> Placing:
        bus = self.broker.connect("placement")
        placement = placement_on(bus, self.clock, PlacementPolicy(tick=TickPolicy(**policy)), f"p{len(self.buses) + 1}")
        await placement.start()
        self.placements.append(placement)
        self.buses.append(bus)
        return placement

    async def add_replica(self, replica_id: str, **capacities: Any) -> Replica:
        replica = Replica(self.broker.connect("replica_worker"), replica_id, **capacities)
        await replica.start()
        self.replicas[replica_id] = replica
        return replica

    async def put(self, record: AdapterRecord) -> None:
        await self.registry.state(ADAPTER).put(record, key_of(record.adapter_id))

    async def second(self, *silent: str, **said: Any) -> None:
        """Everybody but the silent reports, a second passes in which nothing else happens, placement acts."""
        for replica_id, replica in self.replicas.items():
            if replica_id not in silent:
                await replica.report(**said)
        await self.clock.advance(1.0)
        for placement in self.placements:
            await placement.turn()
        await self.clock.advance(0.0)

    async def seconds(self, count: int, *silent: str) -> None:
        for _ in range(count):
            await self.second(*silent)

    async def members(self) -> dict[str, Member]:
        found = await self.registry_view(MEMBERSHIP, POOL)
        return {member.replica_id: member for member in found.members} if found else {}

    async def registry_view(self, channel: Any, *ids: str) -> Any:
        found = await self.buses[0].state(channel).get(*ids)
        return found.value if found else None

    def written(self) -> dict[str, list[tuple[tuple[str, ...], int]]]:
        """Every key that placement writes, with its revision."""
        return {
            channel.name: sorted(
                (ids, stored.revision) for ids, stored in self.broker.buckets[channel.name].stored.items()
            )
            for channel in (MEMBERSHIP, OWNER_COUNT, ASSIGNMENT)
        }


async def two_replicas(stage: Stage, *adapter_ids: str) -> None:
    await stage.add_replica("r1")
    await stage.add_replica("r2")
    for adapter_id in adapter_ids:
        await stage.put(adapter(adapter_id))
    await stage.place()
    await stage.seconds(2)
