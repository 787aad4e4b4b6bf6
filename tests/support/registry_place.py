"""One registry after another in the same folder and on the same bus, which can be made to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.port import Bus, BusUnavailable, StateStore
from shared.contracts.channel import Channel
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.registry_world import FakePlacement, FakeReplica, world

POOL = pool_id(BASE.base_model_hash, 8)


class Broken:
    """The registry's bus; what it says is lost from the moment `broken` is true, as if it had been killed."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, *arguments: Any, **options: Any) -> None:
        if self.broken:
            raise BusUnavailable("planted")
        await self._bus.publish(*arguments, **options)

    def state(self, channel: Channel[Any, Any]) -> StateStore[Any]:
        if self.broken:
            raise BusUnavailable("planted")
        return self._bus.state(channel)


class Place:
    """Where one registry after another lives: the same folder, database and broker."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.broker = MemoryBroker()
        self.registry_bus: Broken | None = None

    async def connect(self, service: str) -> Bus:
        bus = self.broker.connect(service)
        if service != "registry":
            return bus
        self.registry_bus = Broken(bus)
        return self.registry_bus  # type: ignore[return-value]

    def cut(self) -> None:
        assert self.registry_bus is not None
        self.registry_bus.broken = True

    def heal(self) -> None:
        assert self.registry_bus is not None
        self.registry_bus.broken = False

    def registry(self, **changes: Any) -> Any:
        return world(self.folder, self.connect, **{"database_url": self.database_url, **changes})

    async def replicas(self, *replica_ids: str) -> list[FakeReplica]:
        replicas = [FakeReplica(replica_id) for replica_id in replica_ids]
        for replica in replicas:
            await replica.serve(self.broker.connect("replica_worker"))
        await FakePlacement(POOL, replica_ids).serve(self.broker.connect("placement"))
        return replicas
