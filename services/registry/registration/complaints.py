"""What replicas hold against the stored bytes of adapters."""

from __future__ import annotations

from services.registry.registration.lost_bytes import LostBytes
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts import catalog
from shared.contracts.channel import Service
from shared.messages.adapters import AdapterLoadFailed


class Complaints:
    """A part that takes them through a durable consumer: each is looked into at least once."""

    def __init__(self, bus: Bus, lost_bytes: LostBytes) -> None:
        self._bus = bus
        self._lost_bytes = lost_bytes
        self._open: Subscription | None = None

    async def start(self) -> None:
        self._open = await self._bus.consume(catalog.ADAPTER_LOAD_FAILED, Service.REGISTRY.value, self._on_load_failed)

    async def stop(self) -> None:
        if self._open is not None:
            await self._open.close()

    async def _on_load_failed(self, told: AdapterLoadFailed, ids: Ids) -> None:
        """What it raises (a store or a database that is away) brings the same complaint again."""
        await self._lost_bytes.look(told)
