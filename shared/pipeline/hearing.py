"""Announcing on the bus, and hearing there what became of it."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from shared.bus.port import Bus, BusUnavailable, Ids
from shared.contracts import catalog
from shared.messages.adapters import AdapterRegistered
from shared.pipeline.door import Patience, Trying
from shared.pipeline.known import Told, outcome_of
from shared.pipeline.outcome import Outcome

OUTCOMES = (catalog.ADAPTER_ACTIVATED, catalog.ADAPTER_REJECTED, catalog.ADAPTER_FAILED)

Heard = asyncio.Future[Outcome]


class Hearing:
    """Events survive a broken connection: the consumers wait on the server for some minutes."""

    def __init__(self, bus: Bus, patience: Patience) -> None:
        self._bus = bus
        self._patience = patience
        self._waiting: defaultdict[str, set[Heard]] = defaultdict(set)

    async def start(self) -> None:
        """From here on nothing is missed. Raises BusUnavailable."""
        own = f"pipeline-{secrets.token_hex(8)}"
        for channel in OUTCOMES:
            await self._bus.consume(channel, own, self._on_told, only_new=True)

    async def close(self) -> None:
        await self._bus.close()

    async def publish(self, announced: AdapterRegistered) -> None:
        """Returns once the bus has stored it. Raises Unreachable."""
        trying, message_id = Trying(self._patience), secrets.token_hex(16)
        while True:
            try:
                await self._bus.publish(catalog.ADAPTER_REGISTERED, announced, message_id=message_id)
                return
            except BusUnavailable as error:
                await trying.failed(str(error))

    @contextmanager
    def expecting(self, adapter_id: str) -> Iterator[Heard]:
        """The first outcome of this adapter that is told within the block."""
        heard: Heard = asyncio.get_running_loop().create_future()
        self._waiting[adapter_id].add(heard)
        try:
            yield heard
        finally:
            heard.cancel()
            self._waiting[adapter_id].discard(heard)
            if not self._waiting[adapter_id]:
                del self._waiting[adapter_id]

    async def _on_told(self, told: Told, ids: Ids) -> None:
        for heard in self._waiting.get(told.adapter_id, ()):
            if not heard.done():
                heard.set_result(outcome_of(told))
