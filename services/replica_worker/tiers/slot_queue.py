"""Operations that wait for a slot. Requests have a waiting room of their own, `requests/dispatch.py`."""

from __future__ import annotations

import asyncio
from collections import deque

from services.replica_worker.core.slot_decisions import AllBusy
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_reference import SlotReference, Waiter
from services.replica_worker.tiers.slots import SlotTier
from shared.messages.desired import AdapterRecord


class SlotQueue:
    """Waiting is first come, first served, and a waiter that leaves takes no slot with it."""

    def __init__(self, ground: Ground, ram: RamTier, slots: SlotTier) -> None:
        self.slots = slots
        self._clock = ground.clock
        self._ram = ram
        self._waiting: deque[Waiter] = deque()
        slots.listen(self.hand_out)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def without_slot_since_s(self) -> float | None:
        """Since when somebody waits for an adapter that has no slot; None if nobody does."""
        table = self.slots.table
        return min((each.since_s for each in self._waiting if not table.has_slot(each.record.key)), default=None)

    async def acquire(self, record: AdapterRecord) -> SlotReference:
        """A reference on a slot that holds the adapter, as soon as one can be had.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed; no reference is held then, nor after a
        cancellation.
        """
        if not self.slots.table.is_resident(record.key):
            await self._ram.hold(record)  # before a slot is taken from anyone
        waiter = Waiter(record, asyncio.get_running_loop().create_future(), self._clock.now_s())
        self._waiting.append(waiter)
        self.hand_out()
        try:
            return await self.slots.loaded(record.key, await waiter.granted)
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.slots.give_back(record.key, waiter.granted.result())
            raise

    async def acquire_free(self, record: AdapterRecord) -> SlotReference | None:
        """The same, from an empty slot only; None if there is none, or if somebody waits for one."""
        await self._ram.hold(record)
        if self._waiting:
            return None
        acquired = self.slots.table.acquire_free(record.key, self._clock.now_s())
        if isinstance(acquired, AllBusy):
            return None
        grant = self.slots.grant(record, acquired)
        try:
            return await self.slots.loaded(record.key, grant)
        except asyncio.CancelledError:
            self.slots.give_back(record.key, grant)
            raise

    def hand_out(self) -> None:
        """Give slots to those who wait, in their order. References are taken, and loads begun, here and not
        when the waiter wakes: nobody can slip in between, and it does not matter if the waiter never does."""
        still: deque[Waiter] = deque()
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.granted.done():
                continue
            acquired = self.slots.table.acquire(waiter.record.key, self._clock.now_s())
            if isinstance(acquired, AllBusy):
                still.append(waiter)
            else:
                waiter.granted.set_result(self.slots.grant(waiter.record, acquired))
        self._waiting = still
