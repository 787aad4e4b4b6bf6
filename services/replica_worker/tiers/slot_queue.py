"""Those who wait for a slot."""

from __future__ import annotations

import asyncio
from collections import deque

from services.replica_worker.core.slot_decisions import AllBusy
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_reference import SlotReference, Waiter
from services.replica_worker.tiers.slots import SlotTier
from shared.messages.desired import AdapterRecord

PATIENCE_S = 1.0
"""Whoever waits longer for a slot than this gets one taken from the adapters whose traffic never pauses."""


class SlotQueue:
    """Waiting is first come, first served, and a waiter that leaves takes no slot with it."""

    def __init__(self, ground: Ground, ram: RamTier, slots: SlotTier) -> None:
        self.slots = slots
        self._clock = ground.clock
        self._ram = ram
        self._waiting: deque[Waiter] = deque()
        slots.listen(self._hand_out)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def acquire(self, record: AdapterRecord) -> SlotReference:
        """A reference on a slot that holds the adapter, as soon as one can be had.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed; no reference is held then, nor after a
        cancellation.
        """
        if not self.slots.table.is_resident(record.key):
            await self._ram.hold(record)  # before a slot is taken from anyone
        waiter = Waiter(record, asyncio.get_running_loop().create_future(), self._clock.now_s())
        self._waiting.append(waiter)
        self._hand_out()
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

    def tend(self) -> None:
        """Now and then: see to those who have waited too long. Whoever waits for an adapter that has a slot
        waits for that slot to be open, and is no reason to keep it closed."""
        self._hand_out()
        table = self.slots.table
        without_slot = (waiter.since_s for waiter in self._waiting if not table.has_slot(waiter.record.key))
        if self._clock.now_s() - min(without_slot, default=float("inf")) > PATIENCE_S:
            table.close_one()
        else:
            table.reopen()
            self._hand_out()

    def _hand_out(self) -> None:
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
