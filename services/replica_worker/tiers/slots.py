"""The GPU tier: loads into slots, and the references that keep what was loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from services.replica_worker.core.slot_decisions import Acquired, InUse, MustLoad, Resident
from services.replica_worker.core.slots import SlotTable
from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.tiers.errors import AdapterFailed
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_reference import Grant, SlotReference
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

Prove = Callable[[AdapterRecord, int], Awaitable[None]]
"""Raises AdapterFailed if what the slot now holds is not the adapter on record."""


class SlotTier:
    """Who gets a slot is decided elsewhere: `tiers/slot_queue.py` for operations, `requests/` for requests."""

    def __init__(self, ground: Ground, ram: RamTier, table: SlotTable, prove: Prove) -> None:
        self.table = table
        self._engine = ground.engine
        self._clock = ground.clock
        self._on_change = ground.on_change
        self._ram = ram
        self._prove = prove
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._copying = asyncio.Lock()
        self._on_freed: list[Callable[[], None]] = []

    async def close(self) -> None:
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    def listen(self, on_freed: Callable[[], None]) -> None:
        """To be told, in the order of these calls, whenever a slot may have become free, or an adapter resident."""
        self._on_freed.append(on_freed)

    def grant(self, record: AdapterRecord, acquired: Acquired) -> Grant:
        """Begin the load that a reference of the table asks for. Never awaits, so that nobody can slip in between
        the decision and the load. Pair with `loaded` or `give_back`."""
        if isinstance(acquired, MustLoad):
            self._begin(record, acquired)
        return Grant(acquired.slot, None if isinstance(acquired, Resident) else self._loads[acquired.slot])

    async def loaded(self, key: AdapterKey, grant: Grant) -> SlotReference:
        """The reference, once the adapter is in its slot. Raises AdapterUnavailable, AdapterFailed, EngineFailed:
        no reference is held then. A cancellation leaves the grant as it is."""
        if grant.load is not None:
            await asyncio.shield(grant.load)
        return SlotReference(key, grant.slot, lambda: self.give_back(key, grant))

    def give_back(self, key: AdapterKey, grant: Grant) -> None:
        if not grant.void:
            self.table.release(grant.slot, key, self._clock.now_s())
            self._freed()

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
                self._freed()
        return None

    def _begin(self, record: AdapterRecord, acquired: MustLoad) -> None:
        if acquired.evict is not None:
            self._on_change(acquired.evict)
        load = asyncio.create_task(self._load(record, acquired.slot), name=f"load into slot {acquired.slot}")
        self._loads[acquired.slot] = load
        load.add_done_callback(_look_at)

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
        self._freed()

    async def _abandon(self, slot: int) -> None:
        """Nothing of a load that failed may stay in the slot, whatever the engine says about it."""
        try:
            await self._engine.clear(slot)
        finally:
            self.table.fail_load(slot)
            self._freed()

    def _freed(self) -> None:
        for tell in self._on_freed:
            tell()


def _look_at(load: asyncio.Task[None]) -> None:
    """Those who waited for a load that failed may all have left."""
    if not load.cancelled():
        load.exception()
