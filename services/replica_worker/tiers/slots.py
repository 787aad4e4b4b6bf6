"""The GPU tier: loads into slots, and the references that keep what was loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.replica_worker.core.slot_decisions import Acquired, InUse, MustLoad, Resident
from services.replica_worker.core.slots import SlotTable
from services.replica_worker.tiers.copying import Copying
from services.replica_worker.tiers.effect import Effects
from services.replica_worker.tiers.errors import EffectWrong
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.proof import SlotProof
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_reference import Grant, SlotReference
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

OnProof = Callable[[AdapterRecord, Exception | None], None]
"""Told how a proof ended: None is well."""


class SlotTier:
    """Who gets a slot is decided elsewhere: `tiers/slot_queue.py` for operations, `requests/` for requests."""

    def __init__(self, ground: Ground, ram: RamTier, table: SlotTable, effects: Effects) -> None:
        self.table = table
        self.effects = effects
        self.copying = Copying(ground, ram)
        self.proving = True
        """False takes every load for proven: only to measure what proofs cost."""
        self._engine = ground.engine
        self._clock = ground.clock
        self._on_change = ground.on_change
        self._on_mismatch = ground.on_mismatch
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._proofs: dict[int, SlotProof] = {}
        self._on_freed: list[Callable[[], None]] = []
        self._untold: bool | None = None
        """Whether something became free that is still to be told; None: it is told at once."""
        self._tell_proof: OnProof = _tell_nobody

    async def close(self) -> None:
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, *(proof.close() for proof in self._proofs.values()), return_exceptions=True)

    @property
    def unproven(self) -> int:
        """Slots whose load is over and not proven yet."""
        return sum(self._loads[slot].done() and not proof.proven for slot, proof in self._proofs.items())

    @property
    def settling(self) -> bool:
        """Proofs are under way, or what a failed one left is being cleared."""
        return any(proof.under_way for proof in self._proofs.values())

    def listen(self, on_freed: Callable[[], None]) -> None:
        """To be told, in the order of these calls, whenever a slot may have become free, or an adapter resident."""
        self._on_freed.append(on_freed)

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Nobody is told meanwhile of what becomes free: what is left of it at the end is for everybody."""
        self._untold = False
        try:
            yield
        finally:
            untold, self._untold = self._untold, None
            if untold:
                self._freed()

    def listen_to_proofs(self, on_proof: OnProof) -> None:
        self._tell_proof = on_proof

    def grant(self, record: AdapterRecord, acquired: Acquired) -> Grant:
        """Begin the load that a reference of the table asks for. Never awaits, so that nobody can slip in between
        the decision and the load. Pair with `loaded` or `give_back`."""
        if isinstance(acquired, MustLoad):
            self._begin(record, acquired)
        load = None if isinstance(acquired, Resident) else self._loads[acquired.slot]
        return Grant(acquired.slot, self._proofs[acquired.slot], load)

    async def loaded(self, key: AdapterKey, grant: Grant) -> SlotReference:
        """The reference, once the bytes are in the slot. Raises AdapterUnavailable, AdapterFailed, EngineFailed:
        no reference is held then. A cancellation leaves the grant as it is."""
        if grant.load is not None:
            await asyncio.shield(grant.load)
        return self.reference(key, grant)

    def reference(self, key: AdapterKey, grant: Grant) -> SlotReference:
        """The same at once, of a grant that no load stands behind."""
        return SlotReference(key, grant.slot, grant.proof, lambda: self.give_back(key, grant))

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
            await self._clear(slot)
        return None

    def keep(self, proof: SlotProof) -> None:
        self.table.retain(proof.slot)

    def doubt(self, record: AdapterRecord, error: Exception) -> None:
        self.copying.doubt(record, error)

    async def reload(self, proof: SlotProof) -> None:
        await self.copying.copy_anew(proof.record, proof.slot)

    def succeed(self, proof: SlotProof) -> None:
        self.table.release(proof.slot, proof.record.key, self._clock.now_s())
        self._tell_proof(proof.record, None)
        self._freed()

    def fail(self, proof: SlotProof, error: Exception) -> None:
        self.table.condemn(proof.slot)
        self.copying.give_up(proof.record)
        self._tell_proof(proof.record, error)
        self._on_change(proof.record.key)

    async def bury(self, proof: SlotProof, error: Exception) -> None:
        try:
            await self._clear(proof.slot)
        finally:
            if isinstance(error, EffectWrong):
                await self._on_mismatch(proof.record, error)

    def _begin(self, record: AdapterRecord, acquired: MustLoad) -> None:
        if acquired.evict is not None:
            self._on_change(acquired.evict)
        proof = self._proofs[acquired.slot] = SlotProof(record, acquired.slot, self.effects, self)
        if not self.proving:
            proof.waive()
        load = asyncio.create_task(self._load(record, acquired.slot), name=f"load into slot {acquired.slot}")
        self._loads[acquired.slot] = load
        load.add_done_callback(_look_at)

    async def _load(self, record: AdapterRecord, slot: int) -> None:
        try:
            await self.copying.copy(record, slot)
        except BaseException:
            await self._abandon(slot)
            raise
        self.table.finish_load(slot, self._clock.now_s())
        self._on_change(record.key)
        self._freed()

    async def _abandon(self, slot: int) -> None:
        """Nothing of a load that failed may stay in the slot, whatever the engine says about it."""
        try:
            await self._engine.clear(slot)
        finally:
            del self._proofs[slot]
            self.table.fail_load(slot)
            self._freed()

    async def _clear(self, slot: int) -> None:
        try:
            await self._engine.clear(slot)
        finally:  # a load overwrites whatever is left there
            del self._proofs[slot]
            self.table.finish_clear(slot)
            self._freed()

    def _freed(self) -> None:
        if self._untold is not None:
            self._untold = True
            return
        for tell in self._on_freed:
            tell()


def _tell_nobody(record: AdapterRecord, error: Exception | None) -> None:
    """Until somebody listens."""


def _look_at(load: asyncio.Task[None]) -> None:
    """Those who waited for a load that failed may all have left."""
    if not load.cancelled():
        load.exception()
