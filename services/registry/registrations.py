"""From an announcement to a verified adapter: the one way in, for the POST and for the event."""

from __future__ import annotations

import msgspec

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.aliases import Denied
from services.registry.core.defects import defect
from services.registry.core.description import Surroundings, check_identity
from services.registry.core.records import StoredAdapter
from services.registry.core.verify import FileFacts, Limits, verify
from services.registry.io import adapter_rows, base_model_rows, customer_rows, outbox_rows
from services.registry.io.database import Collision, Database
from services.registry.io.inspection import inspect
from services.registry.io.meters import Meters
from services.registry.io.weights import WeightsSources, upload_key
from shared.messages.adapters import AdapterRegistered, AdapterRejected, Defect
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
    evaluation_deadline_s: float


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """Where weights come from and where they go."""

    sources: WeightsSources
    store: ObjectStore


class Registrations:
    def __init__(
        self, database: Database, shelf: Shelf, clock: Clock, policy: RegistrationPolicy, meters: Meters
    ) -> None:
        self._database = database
        self._shelf = shelf
        self._clock = clock
        self._policy = policy
        self._meters = meters

    async def register(self, announced: AdapterRegistered, *, by_event: bool = False) -> Outcome:
        """Check everything, store the weights, and keep the adapter as verified; repeating it is harmless.

        Raises StoreUnavailable, SourceUnavailable, DatabaseUnavailable: nothing is known of the adapter then,
        and the same announcement may come again.
        """
        try:
            outcome = await self._register(announced, by_event)
        except Collision:
            # The same id was announced twice at once and the other came first: now it is known.
            outcome = await self._register(announced, by_event)
        if by_event and isinstance(outcome, Denied):
            await self._tell_denied(announced, outcome)
        became = _in_a_word(outcome)
        self._meters.registered(became)
        _log.info("an adapter was announced", adapter_id=announced.adapter_id, outcome=became)
        return outcome

    async def refuse(self, outcome: AdapterRejected) -> None:
        """Tell of what was no announcement; nothing is kept under its id. Raises DatabaseUnavailable."""
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.refused(outcome)], self._clock.wall_s())
        self._meters.registered("rejected")

    async def _register(self, announced: AdapterRegistered, by_event: bool) -> Outcome:
        known, around = await self._surroundings(announced)
        if (settled := _settled(known, announced)) is not None:
            return settled
        checked = await self._check_and_store(announced, around)
        if not isinstance(checked, FileFacts):
            return await self._reject(announced, checked, around.tenant_known)
        return await self._accept(announced, around, checked, by_event)

    async def _surroundings(self, announced: AdapterRegistered) -> tuple[StoredAdapter | None, Surroundings]:
        async with self._database.read() as connection:
            known = await adapter_rows.find(connection, announced.adapter_id)
            around = Surroundings(
                tenant_known=await customer_rows.tenant_exists(connection, announced.tenant_id),
                base=await base_model_rows.find(connection, announced.base_model_hash),
                base_names=await base_model_rows.names(connection),
                predecessor_tenant_id=await adapter_rows.tenant_of(connection, announced.predecessor_id),
            )
        return known, around

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

    async def _accept(
        self, announced: AdapterRegistered, around: Surroundings, file: FileFacts, by_event: bool
    ) -> Outcome:
        now_s, store_key = self._clock.wall_s(), weights_key(file.digest)
        async with self._database.write() as connection:
            known = await adapter_rows.find(connection, announced.adapter_id, to_change=True)
            if (settled := _settled(known, announced)) is not None:
                return settled
            current = known.status if known else None
            moves = lifecycle.accept(current, "every check passed", now_s, self._policy.evaluation_deadline_s)
            adapter = records.accepted(announced, around.base, file, store_key, moves[-1])
            await adapter_rows.save(connection, adapter, moves)
            notes = [*(() if by_event else (facts.announced(announced),)), *facts.verified(adapter)]
            await outbox_rows.append(connection, notes, now_s)
        self._database.changes.tell_verified(adapter.adapter_id)
        await self._forget_upload(announced)
        return Registered(adapter=adapter, created=True)

    async def _reject(self, announced: AdapterRegistered, defects: tuple[Defect, ...], tenant_known: bool) -> Outcome:
        """Kept under its id if it has one that can be kept; told in any case."""
        now_s = self._clock.wall_s()
        nameless = check_identity(announced, tenant_known) or not records.fits_a_record(announced)
        async with self._database.write() as connection:
            known = await adapter_rows.find(connection, announced.adapter_id, to_change=True)
            if (settled := _settled(known, announced)) is not None:
                return settled
            if not nameless:
                moves = lifecycle.reject(known.status if known else None, defects[0].message, now_s)
                await adapter_rows.save(connection, records.rejected(announced, defects, moves[-1]), moves)
            await outbox_rows.append(connection, [facts.rejected(announced, defects)], now_s)
        return Rejected(adapter_id=announced.adapter_id, defects=defects)

    async def _tell_denied(self, announced: AdapterRegistered, why: Denied) -> None:
        """An event has nobody who reads an answer: that its id is taken must come as a fact."""
        taken = defect(why.code, why.message, why.field, found="a registered id", allowed="a new id")
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.rejected(announced, (taken,))], self._clock.wall_s())

    async def _forget_upload(self, announced: AdapterRegistered) -> None:
        """Its bytes are in their final place by now; what cannot be deleted costs space and nothing else."""
        try:
            await self._shelf.store.delete(upload_key(announced.checksum))
        except StoreUnavailable as error:
            _log.warning("an upload was left behind", digest=announced.checksum, error=error)


def _in_a_word(outcome: Outcome) -> str:
    """A POST is told as an event, which the registry hears as well: what was known before is no registration."""
    if isinstance(outcome, Registered) and not outcome.created:
        return "known"
    return type(outcome).__name__.lower()


def _settled(known: StoredAdapter | None, announced: AdapterRegistered) -> Registered | Denied | None:
    """The outcome if this id was decided about before. A rejected announcement decided nothing."""
    if known is None or known.status == "rejected":
        return None
    return records.conflict(known.announced, announced) or Registered(adapter=known, created=False)
