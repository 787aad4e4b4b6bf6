"""Telling the fleet what this replica holds: changes at once, everything now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from services.replica_worker.core.residency import ResidencyLog
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.catalog import REPLICA_RESIDENCY
from shared.messages.identity import AdapterKey
from shared.messages.reports import Residency
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

COALESCE_S = 0.02
_log = get_logger(__name__)


class ResidencyTeller:
    """Changes that come within 20 ms of each other travel together. One that cannot be sent is healed by
    the next snapshot."""

    def __init__(self, bus: Bus, log: ResidencyLog, clock: Clock) -> None:
        self._bus = bus
        self._told = log
        self._clock = clock
        self._dirty: set[AdapterKey] = set()
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tier_of: Callable[[AdapterKey], str] = lambda key: "remote"
        self._held: Callable[[], Iterable[AdapterKey]] = tuple

    def look_at(self, tier_of: Callable[[AdapterKey], str], held: Callable[[], Iterable[AdapterKey]]) -> None:
        """Where the truth is read when something is told; `held` names everything in some tier."""
        self._tier_of, self._held = tier_of, held

    def changed(self, key: AdapterKey) -> None:
        self._dirty.add(key)
        self._changed.set()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name="residency changes")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def snapshot(self) -> None:
        self._dirty.clear()
        await self._send(self._told.snapshot({key: self._tier_of(key) for key in self._held()}))

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await self._clock.sleep_s(COALESCE_S)
            self._changed.clear()
            dirty, self._dirty = self._dirty, set()
            await self._send(self._told.changes({key: self._tier_of(key) for key in dirty}))

    async def _send(self, messages: list[Residency]) -> None:
        """Together: nothing else of this replica's may come between the parts of a snapshot."""
        async with self._sending:
            for message in messages:
                try:
                    await self._bus.publish(REPLICA_RESIDENCY, message, message.replica_id)
                except BusUnavailable as error:
                    _log.warning("a residency message was not sent", sequence=message.sequence, reason=str(error))
