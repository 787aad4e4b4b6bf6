"""From an announcement that is known to a verified or rejected adapter: reads its file, checks it and stores it."""

from __future__ import annotations

import asyncio

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.aliases import Denied
from services.registry.core.defects import defect
from services.registry.core.description import Surroundings, check_identity
from services.registry.core.records import StoredAdapter
from services.registry.core.verify import FileFacts, Limits, verify
from services.registry.io import adapter_rows, base_model_rows, customer_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.io.inspection import inspect
from services.registry.io.meters import Meters
from services.registry.io.weights import WeightsSources, upload_key
from shared.messages.adapters import AdapterRegistered, Defect
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import DigestMismatch, ObjectMissing, ObjectStore, StoreUnavailable, weights_key

_log = get_logger(__name__)


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false if exactly this was announced before; the adapter is then where it is by now."""

    adapter: StoredAdapter
    created: bool


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    defects: tuple[Defect, ...]


Outcome = Registered | Rejected | Denied
"""Denied: another adapter has this id already."""


class RegistrationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    largest_file_bytes: int
    verification_deadline_s: float
    evaluation_deadline_s: float


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """Where weights come from and where they go."""

    sources: WeightsSources
    store: ObjectStore


class Verifications:
    """One at a time of each adapter: whoever asks for one that is under way waits for the same outcome."""

    def __init__(
        self, database: Database, shelf: Shelf, clock: Clock, policy: RegistrationPolicy, meters: Meters
    ) -> None:
        self._database = database
        self._shelf = shelf
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._running: dict[str, asyncio.Task[Outcome]] = {}

    async def verify(self, announced: AdapterRegistered, around: Surroundings, *, told: bool = False) -> Outcome:
        """Of an announcement that is kept as registered. Unless the bus was `told` of it by an event, it is once
        there is no defect: pipelines and audit then read one stream, whichever way adapters came in.

        Raises StoreUnavailable, SourceUnavailable, DatabaseUnavailable: it is still registered then, and those who
        follow what is left take it up.
        """
        adapter_id = announced.adapter_id
        if (running := self._running.get(adapter_id)) is not None:
            return _as_known(await asyncio.shield(running))
        task = asyncio.create_task(self._run(announced, around, told))
        self._running[adapter_id] = task
        task.add_done_callback(lambda _: self._running.pop(adapter_id))
        return await asyncio.shield(task)

    async def verify_unkept(self, announced: AdapterRegistered, around: Surroundings) -> Outcome:
        """Of one that cannot be kept under its id: it has defects, and this finds all of them."""
        checked = await self._check_and_store(announced, around)
        if isinstance(checked, FileFacts):
            raise ValueError(f"{announced.adapter_id} has no defect and was not kept")
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.rejected(announced, checked)], self._clock.wall_s())
        self._meters.registered("rejected")
        return Rejected(adapter_id=announced.adapter_id, defects=checked)

    async def start(self) -> None:
        """Whatever is to be verified comes through `verify`."""

    async def stop(self) -> None:
        """What is under way is left: the next start takes it up again."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, announced: AdapterRegistered, around: Surroundings, told: bool) -> Outcome:
        try:
            checked = await self._check_and_store(announced, around)
            if isinstance(checked, FileFacts):
                return await self._accept(announced, around, checked, told)
            return await self._reject(announced, checked)
        except Exception:
            self._database.changes.tell_left(announced.adapter_id)
            raise

    async def _check_and_store(
        self, announced: AdapterRegistered, around: Surroundings
    ) -> FileFacts | tuple[Defect, ...]:
        """The file, which is then in the store, or its defects."""
        limits = Limits(largest_file_bytes=self._policy.largest_file_bytes)
        weights = await self._shelf.sources.open(announced.weights_uri)
        if isinstance(weights, Defect):
            return verify(announced, around, weights, limits)
        try:
            file = await inspect(weights, limits.largest_file_bytes)
            if defects := verify(announced, around, file, limits):
                return defects
            await self._shelf.store.put(weights_key(file.digest), weights.chunks(), file.digest)
        except (DigestMismatch, ObjectMissing):
            message = "The weights file changed while it was being read."
            return (defect("weights_changed", message, "weights_uri", found="other bytes", allowed="one file"),)
        return file

    async def _accept(self, announced: AdapterRegistered, around: Surroundings, file: FileFacts, told: bool) -> Outcome:
        now_s, store_key = self._clock.wall_s(), weights_key(file.digest)
        async with self._database.write() as connection:
            known = await self._known(connection, announced)
            if (settled := settled_outcome(known, announced)) is not None:
                return settled
            step = lifecycle.verify("every check passed", now_s, self._policy.evaluation_deadline_s)
            adapter = records.accepted(announced, around.base, file, store_key, step)
            adapter = msgspec.structs.replace(adapter, registered_at_s=known.registered_at_s)
            await adapter_rows.save(connection, adapter, [step])
            notes = [*(() if told else (facts.announced(announced),)), *facts.verified(adapter)]
            await outbox_rows.append(connection, notes, now_s)
        self._database.changes.tell_verified(adapter.adapter_id)
        self._meters.registered("registered")
        await self._forget_upload(announced)
        return Registered(adapter=adapter, created=True)

    async def _reject(self, announced: AdapterRegistered, defects: tuple[Defect, ...]) -> Outcome:
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            known = await self._known(connection, announced)
            if (settled := settled_outcome(known, announced)) is not None:
                return settled
            step = lifecycle.move("registered", "rejected", defects[0].message, now_s)
            await adapter_rows.save(connection, records.rejected(announced, defects, step), [step])
            await outbox_rows.append(connection, [facts.rejected(announced, defects)], now_s)
        self._meters.registered("rejected")
        return Rejected(adapter_id=announced.adapter_id, defects=defects)

    async def _known(self, connection: AsyncConnection, announced: AdapterRegistered) -> StoredAdapter:
        known = await adapter_rows.find(connection, announced.adapter_id, to_change=True)
        if known is None:
            raise LookupError(f"{announced.adapter_id} is verified without having been kept")
        return known

    async def _forget_upload(self, announced: AdapterRegistered) -> None:
        """Its bytes are in their final place by now; what cannot be deleted costs space and nothing else."""
        try:
            await self._shelf.store.delete(upload_key(announced.checksum))
        except StoreUnavailable as error:
            _log.warning("an upload was left behind", digest=announced.checksum, error=error)


async def surroundings(connection: AsyncConnection, announced: AdapterRegistered) -> Surroundings:
    """What the registry knows that an announcement must agree with, at this moment."""
    return Surroundings(
        tenant_known=await customer_rows.tenant_exists(connection, announced.tenant_id),
        base=await base_model_rows.find(connection, announced.base_model_hash),
        base_names=await base_model_rows.names(connection),
        predecessor_tenant_id=await adapter_rows.tenant_of(connection, announced.predecessor_id),
    )


def can_be_kept(announced: AdapterRegistered, around: Surroundings) -> bool:
    """Whether there is an id to keep it under; what else is wrong with it is told by its verification."""
    return not check_identity(announced, around.tenant_known) and records.fits_a_record(announced)


def settled_outcome(known: StoredAdapter, announced: AdapterRegistered) -> Outcome | None:
    """None if its verification is still to be decided; else what became of it meanwhile."""
    if (conflict := records.conflict(known.announced, announced)) is not None:
        return conflict
    if known.status == "registered":
        return None
    if known.status == "rejected":
        return Rejected(adapter_id=known.adapter_id, defects=known.defects)
    return Registered(adapter=known, created=False)


def _as_known(outcome: Outcome) -> Outcome:
    """For whoever announced the same while it was being verified."""
    return msgspec.structs.replace(outcome, created=False) if isinstance(outcome, Registered) else outcome
