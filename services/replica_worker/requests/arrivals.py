"""Loads for those who wait, until it is known how each of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from services.replica_worker.core.dispatch_view import Load
from services.replica_worker.means import Means
from services.replica_worker.requests.waiting_room import WaitingRoom
from services.replica_worker.tiers.errors import AdapterFailed
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Arrivals:
    def __init__(self, means: Means, room: WaitingRoom, on_end: Callable[[], None]) -> None:
        self._by = means
        self._room = room
        self._on_end = on_end
        self._loading: dict[AdapterKey, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._loading)

    def failed(self, key: AdapterKey | None) -> bool:
        """Its load has just failed, and those who wait for it are about to be told."""
        return key in self._loading and not self._by.loader.slots.table.has_slot(key)

    def refuse_known(self) -> None:
        """A slot can be found wrong after its load was over: then nobody else may wait for the same to happen."""
        table, blocked = self._by.loader.slots.table, self._by.loader.failures.blocked(self._by.clock.now_s())
        for ticket in self._room if blocked else ():
            if ticket.record is None or ticket.key not in blocked or table.has_slot(ticket.record.key):
                continue
            try:
                self._by.loader.refuse_known(ticket.record)
            except AdapterFailed as error:
                self._room.fail(error, lambda each, failed=ticket: each is failed)  # type: ignore[misc]

    def close(self) -> None:
        for load in self._loading.values():
            load.cancel()

    def begin(self, load: Load, *, beside_others: bool) -> None:
        """Nothing happens if an operation has taken the slot that was made free."""
        if not self._by.loader.slots.table.can_load(load.slot, load.key):
            return
        record = next(each.record for each in self._room if each.record and each.key == load.key)
        _log.debug("an adapter is loaded for those who wait", adapter_id=record.adapter_id, reason=load.reason)
        if beside_others:
            self._by.meters.loads_overlapped.inc()
        for ticket in self._room:
            if ticket.key == load.key:
                ticket.running.load_began_at_s = self._by.clock.now_s()
        arrival = self._by.loader.load_into(record, load.slot)
        self._loading[load.key] = asyncio.create_task(self._see(load.key, arrival), name=f"load of {record.adapter_id}")

    async def _see(self, key: AdapterKey, arrival: Awaitable[None]) -> None:
        """Those who wait for it are told if it failed; they start by themselves if it did not."""
        failure: Exception | None = None
        try:
            await arrival
        except Exception as error:
            failure = error
        finally:
            del self._loading[key]
        if failure is not None:
            self._room.fail(failure, lambda ticket: ticket.key == key)
        self._on_end()
