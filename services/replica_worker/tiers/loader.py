"""One adapter through all tiers of this replica: store, disk, RAM, slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from services.replica_worker.core.keeping import Keeping
from services.replica_worker.core.slot_decisions import Resident
from services.replica_worker.tiers.demand import Demand
from services.replica_worker.tiers.disk import DiskTier
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.past import Past
from services.replica_worker.tiers.ram import RamTier
from services.replica_worker.tiers.slot_queue import SlotQueue
from services.replica_worker.tiers.slot_reference import Grant, SlotReference
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

OPERATION_DEADLINE_S = 30.0


class Loader:
    """Everything that moves an adapter goes through here.

    An adapter that failed for a reason of its own is refused at once for a while, and not fetched again
    for every request that names it; an operator's load tries anew.
    """

    def __init__(self, base_model_hash: str, disk: DiskTier, ram: RamTier, queue: SlotQueue, ground: Ground) -> None:
        self.disk = disk
        self.ram = ram
        self.slots = queue.slots
        self.queue = queue
        self._past = Past(ground.clock, self._check_base, ground.on_lost)
        self.failures = self._past.failures
        self.merged: AdapterKey | None = None
        """The adapter whose weights the engine's model has in it: in no slot, and here as long as the replica."""
        self._base_model_hash = base_model_hash
        self._clock = ground.clock
        self._on_change = ground.on_change
        self.demand = Demand()
        self.keeping = Keeping()
        self.slots.listen_to_proofs(self._past.on_proof)

    def tier_of(self, key: AdapterKey) -> str:
        """The highest tier that holds it: "gpu", "ram", "disk" or "remote"."""
        if key == self.merged or self.slots.table.is_resident(key):
            return "gpu"
        if self.ram.holds(key):
            return "ram"
        return "disk" if self.disk.holds(key.digest) else "remote"

    def serve_only(self, key: AdapterKey) -> None:
        """It is merged in: no other adapter comes any further than the disk from now on."""
        self.merged = key

    @property
    def resident(self) -> tuple[AdapterKey, ...]:
        """Whatever can be served at once."""
        return self.slots.table.resident if self.merged is None else (self.merged,)

    def holds(self, key: AdapterKey) -> bool:
        """Something of it is here, or on its way."""
        return self.tier_of(key) != "remote" or self.in_use(key)

    def forget(self, key: AdapterKey) -> None:
        """What was learnt about an adapter that is gone for good."""
        self.failures.forgive(key)
        self.ram.sizes.pop(key, None)
        self.slots.effects.forget(key)

    def refuse_known(self, record: AdapterRecord) -> None:
        """Raises AdapterFailed for what has failed a short while ago and would fail again."""
        self._past.refuse_known(record)

    async def fetch(self, record: AdapterRecord) -> None:
        """Have it in RAM or higher, so that it is one copy away when its turn comes.

        Raises AdapterUnavailable, AdapterFailed.
        """
        self.refuse_known(record)
        if not self.slots.table.is_resident(record.key):
            with self.demand.urgently(), self._past.remembering(record):
                await self.ram.hold(record)

    def take(self, record: AdapterRecord) -> SlotReference:
        """A reference on a slot that holds it now and is open. Raises ValueError if there is none."""
        if not self.slots.table.is_resident(record.key):
            raise ValueError(f"{record.adapter_id} is in no slot")
        acquired = self.slots.table.acquire(record.key, self._clock.now_s())
        if not isinstance(acquired, Resident):
            raise ValueError(f"{record.adapter_id} cannot be used now: {acquired.reason}")
        return self.slots.reference(record.key, self.slots.grant(record, acquired))

    def load_into(self, record: AdapterRecord, slot: int) -> Coroutine[Any, Any, None]:
        """Reserve this empty or idle slot and begin the load, both before this returns; await how it ends.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed; the slot is empty then.
        """
        reserved = self.slots.table.load_into(slot, record.key, self._clock.now_s())
        return self._arrival(record, self.slots.grant(record, reserved))

    async def acquire(self, record: AdapterRecord) -> SlotReference:
        """A slot reference for an operation, whose proof is for the operation to begin.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed.
        """
        self.refuse_known(record)
        with self.demand.urgently(), self._past.remembering(record):
            return await self.queue.acquire(record)

    async def acquire_proven(self, record: AdapterRecord) -> SlotReference:
        """The same, proven: whoever asked for the operation has given up after `OPERATION_DEADLINE_S`."""
        try:
            async with asyncio.timeout(OPERATION_DEADLINE_S):
                return await (await self.acquire(record)).proven()
        except TimeoutError:
            raise AdapterUnavailable(f"{record.adapter_id} got no slot within {OPERATION_DEADLINE_S:g} s") from None

    async def bring(self, record: AdapterRecord, tier: str) -> None:
        """Bring it up to `tier` whatever happened before; once this returns it is there (C28). One that nobody
        wants stays for KEPT_S unless its place is needed.

        Raises AdapterUnavailable, AdapterFailed, EngineFailed.
        """
        if record.key == self.merged:
            return
        with self.demand.urgently(), self._past.remembering(record):
            if tier == "gpu":
                (await (await self.queue.acquire(record)).proven()).release()
            else:
                await self._hold(record, tier)
        if not record.wanted:
            self.keeping.keep(record.key, self._clock.now_s())

    async def bring_quietly(self, record: AdapterRecord, tier: str) -> bool:
        """The same in the background, into an empty slot only: False if there was none to be had."""
        with self._past.remembering(record):
            if tier != "gpu":
                await self._hold(record, tier)
            elif (reference := await self.queue.acquire_free(record)) is not None:
                (await reference.proven()).release()
            else:
                return False
        return True

    async def drop(self, key: AdapterKey, *, keep_file: bool = False) -> str | None:
        """Remove it from every tier; returns why not if something uses it, also if a request asks for it
        meanwhile. `keep_file`: another adapter has the same bytes and is still wanted."""
        if key == self.merged:
            return "it is merged into the weights of this replica"
        if (reason := await self.slots.vacate(key)) is not None:
            return reason
        if self.demand.awaits(key):
            return "a request waits for it"
        if (reason := self.ram.discard(key)) is not None:
            return reason
        if not keep_file and (reason := self.disk.discard(key.digest)) is not None:
            return reason
        self._on_change(key)
        return None

    def in_use(self, key: AdapterKey) -> bool:
        if key == self.merged or self.demand.awaits(key):
            return True
        return self.slots.table.in_use(key) or self.ram.budget.in_use(key) or self.disk.budget.in_use(key.digest)

    def all_in_use(self, keys_of: Callable[[str], frozenset[AdapterKey]]) -> frozenset[AdapterKey]:
        """Every adapter of which the same is true; `keys_of` names those with the same bytes."""
        on_disk = (keys_of(digest) for digest in self.disk.budget.all_in_use)
        merged = frozenset() if self.merged is None else frozenset({self.merged})
        return merged.union(self.slots.table.all_in_use, self.ram.budget.all_in_use, self.demand.awaited, *on_disk)

    async def close(self) -> None:
        await self.slots.close()
        await self.ram.close()
        await self.disk.close()

    async def _hold(self, record: AdapterRecord, tier: str) -> None:
        await (self.ram if tier == "ram" else self.disk).hold(record)

    async def _arrival(self, record: AdapterRecord, grant: Grant) -> None:
        try:
            with self.demand.urgently(), self._past.remembering(record):
                (await self.slots.loaded(record.key, grant)).release()
        except asyncio.CancelledError:
            self.slots.give_back(record.key, grant)
            raise

    def _check_base(self, record: AdapterRecord) -> None:
        """Registration checked it too, but this replica may have been given another model since."""
        if record.base_model_hash != self._base_model_hash:
            raise AdapterFailed(
                f"{record.adapter_id} belongs to base model {record.base_model_hash[:12]}, this replica runs"
                f" {self._base_model_hash[:12]}"
            )
        if self.merged is not None:
            raise AdapterFailed(f"this replica serves {self.merged.adapter_id} alone, merged into its base")
