"""The GPU tier: references on slots, loads into them, and those who wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from services.replica_worker.core.slot_decisions import Acquired, AllBusy, InUse, MustLoad, Resident
from services.replica_worker.core.slots import SlotTable
from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.tiers.errors import AdapterFailed
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_reference import Grant, SlotReference, Waiter
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

PATIENCE_S = 1.0
"""Whoever waits longer for a slot than this gets one taken from the adapters whose traffic never pauses."""

Prove = Callable[[AdapterRecord, int], Awaitable[None]]
"""Raises AdapterFailed if what the slot now holds is not the adapter on record."""


class SlotTier:
    """Waiting is first come, first served, and a waiter that leaves takes no slot with it."""

    def __init__(self, ground: Ground, ram: RamTier, table: SlotTable, prove: Prove) -> None:
        self.table = table
        self._engine = ground.engine
        self._clock = ground.clock
        self._on_change = ground.on_change
        self._ram = ram
        self._prove = prove
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._waiting: deque[Waiter] = deque()
        self._copying = asyncio.Lock()

    async def close(self) -> None:
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def acquire(self, record: AdapterRecord) -> SlotReference:
        """A reference on a slot that holds the adapter, as soon as one can be had.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed; no reference is held then, nor after a
        cancellation.
        """
        if not self.table.is_resident(record.key):
            await self._ram.hold(record)  # before a slot is taken from anyone
        waiter = Waiter(record, asyncio.get_running_loop().create_future(), self._clock.now_s())
        self._waiting.append(waiter)
        self._hand_out()
        try:
            return await self._loaded(record.key, await waiter.granted)
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._release(record.key, waiter.granted.result())
            raise

    async def acquire_free(self, record: AdapterRecord) -> SlotReference | None:
        """The same, from an empty slot only; None if there is none, or if a request waits for one."""
        await self._ram.hold(record)
        if self._waiting:
            return None
        acquired = self.table.acquire_free(record.key, self._clock.now_s())
        if isinstance(acquired, AllBusy):
            return None
        grant = self._grant(record, acquired)
        try:
            return await self._loaded(record.key, grant)
        except asyncio.CancelledError:
            self._release(record.key, grant)
            raise

    async def vacate(self, key: AdapterKey) -> str | None:
        """Clear the slot of an idle adapter; returns why not if it is in use."""
        slot = self.table.vacate(key)
        if isinstance(slot, InUse):
            return slot.reason
        if slot is not None:
            self._on_change(key)
            try:
                await self._engine.clear(slot)
            finally:  # a load overwrites whatever is left there
                self.table.finish_clear(slot)
                self._hand_out()
        return None

    def tend(self) -> None:
        """Now and then: see to those who have waited too long. Whoever waits for an adapter that has a slot
        waits for that slot to be open, and is no reason to keep it closed."""
        self._hand_out()
        without_slot = (waiter.since_s for waiter in self._waiting if not self.table.has_slot(waiter.record.key))
        if self._clock.now_s() - min(without_slot, default=float("inf")) > PATIENCE_S:
            self.table.close_one()
        else:
            self.table.reopen()
            self._hand_out()

    def _hand_out(self) -> None:
        """Give slots to those who wait, in their order. References are taken, and loads begun, here and not
        when the waiter wakes: nobody can slip in between, and it does not matter if the waiter never does."""
        still: deque[Waiter] = deque()
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.granted.done():
                continue
            acquired = self.table.acquire(waiter.record.key, self._clock.now_s())
            if isinstance(acquired, AllBusy):
                still.append(waiter)
            else:
                waiter.granted.set_result(self._grant(waiter.record, acquired))
        self._waiting = still

    def _grant(self, record: AdapterRecord, acquired: Acquired) -> Grant:
        if isinstance(acquired, MustLoad):
            self._begin(record, acquired)
        return Grant(acquired.slot, None if isinstance(acquired, Resident) else self._loads[acquired.slot])

    def _begin(self, record: AdapterRecord, acquired: MustLoad) -> None:
        if acquired.evict is not None:
            self._on_change(acquired.evict)
        load = asyncio.create_task(self._load(record, acquired.slot), name=f"load into slot {acquired.slot}")
        self._loads[acquired.slot] = load
        load.add_done_callback(_look_at)

    async def _loaded(self, key: AdapterKey, grant: Grant) -> SlotReference:
        if grant.load is not None:
            await asyncio.shield(grant.load)
        return SlotReference(key, grant.slot, lambda: self._release(key, grant))

    async def _load(self, record: AdapterRecord, slot: int) -> None:
        try:
            host = await self._ram.hold(record)
            async with self._copying:
                with self._ram.pinned(record.key):
                    await self._engine.load(slot, host)
                await self._prove(record, slot)
        except BaseException as error:
            await self._abandon(slot)
            if isinstance(error, AdapterUnusable):
                raise AdapterFailed(f"the engine cannot apply {record.adapter_id}: {error}", elsewhere=False) from error
            raise
        self.table.finish_load(slot, self._clock.now_s())
        self._on_change(record.key)
        self._hand_out()

    async def _abandon(self, slot: int) -> None:
        """Nothing of a load that failed may stay in the slot, whatever the engine says about it."""
        try:
            await self._engine.clear(slot)
        finally:
            self.table.fail_load(slot)
            self._hand_out()

    def _release(self, key: AdapterKey, grant: Grant) -> None:
        if not grant.void:
            self.table.release(grant.slot, key, self._clock.now_s())
            self._hand_out()


def _look_at(load: asyncio.Task[None]) -> None:
    """Those who waited for a load that failed may all have left."""
    if not load.cancelled():
        load.exception()
