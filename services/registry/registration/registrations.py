"""The one way in, for the POST and for the event: an announcement is kept before its file is opened."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.defects import defect
from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.description import Surroundings, check_identity
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, outbox_rows, upload_rows
from services.registry.io.database import Collision, Database
from services.registry.io.meters import Meters
from services.registry.io.source_unavailable import SourceUnavailable
from services.registry.registration.batches import Batches
from services.registry.registration.outcomes import Outcome, Registered, RegistrationPolicy
from services.registry.registration.sights import Sight
from services.registry.registration.verifications import Verifications
from shared.messages.adapters import AdapterRegistered, AdapterRejected
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import StoreUnavailable

_log = get_logger(__name__)


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An announcement that is to be verified. `adapter` is None if it cannot be kept under its id; `begun` is the
    move that is to be written of one that was not under way yet."""

    around: Surroundings
    adapter: StoredAdapter | None = None
    begun: Move | None = None


class Registrations:
    """A part."""

    def __init__(
        self,
        database: Database,
        verifications: Verifications,
        clock: Clock,
        policy: RegistrationPolicy,
        meters: Meters,
    ) -> None:
        self._database = database
        self._verifications = verifications
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._keeping = Batches(database, self._keep_all, announce=False)

    async def start(self) -> None:
        """Whatever is to be registered comes through `register`."""

    async def stop(self) -> None:
        await self._keeping.stop()

    async def register(self, announced: AdapterRegistered, *, by_event: bool = False) -> Outcome:
        """Keep it, check everything and store the weights; repeating it is harmless.

        Raises StoreUnavailable, SourceUnavailable, DatabaseUnavailable. What is known by then stays registered and is
        taken up again by itself; the same announcement may come again and then waits for the same outcome. An event
        need not: once kept, it raises nothing of a store or a source that is away.
        """
        try:
            kept = await self._keeping.add(announced)
        except Collision:
            # The same id was announced twice at once and the other came first: now it is known.
            kept = await self._keeping.add(announced)
        outcome = await self._verified(announced, kept, by_event) if isinstance(kept, _Kept) else kept
        if by_event and isinstance(outcome, Denied):
            await self._tell_denied(announced, outcome)
        if isinstance(outcome, Denied) or (isinstance(outcome, Registered) and not outcome.created):
            self._meters.registered("denied" if isinstance(outcome, Denied) else "known")
        _log.info("an adapter was announced", adapter_id=announced.adapter_id, outcome=type(outcome).__name__.lower())
        return outcome

    async def refuse(self, outcome: AdapterRejected) -> None:
        """Tell of what was no announcement; nothing is kept under its id. Raises DatabaseUnavailable."""
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.refused(outcome)], self._clock.wall_s())
        self._meters.registered("rejected")

    async def _keep_all(
        self, connection: AsyncConnection, announcements: Sequence[AdapterRegistered]
    ) -> list[_Kept | Outcome]:
        """In one transaction. Those of one id find each other as if each had come alone. Raises StoreUnavailable if the
        file of one is being removed."""
        await upload_rows.check_staying(connection, [one.checksum for one in announcements], self._clock.wall_s())
        known = await adapter_rows.among(connection, [one.adapter_id for one in announcements], to_change=True)
        there, sight, outcomes = frozenset(known), Sight(connection), list[_Kept | Outcome]()
        new, changed = list[adapter_rows.Moved](), list[adapter_rows.Moved]()
        for announced in announcements:
            outcome = await self._kept(announced, known.get(announced.adapter_id), sight)
            outcomes.append(outcome)
            if isinstance(outcome, _Kept) and outcome.adapter is not None and outcome.begun is not None:
                known[announced.adapter_id] = outcome.adapter
                (changed if announced.adapter_id in there else new).append((outcome.adapter, outcome.begun))
        await adapter_rows.add_all(connection, new)
        await adapter_rows.change_all(connection, changed)
        return outcomes

    async def _kept(self, announced: AdapterRegistered, known: StoredAdapter | None, sight: Sight) -> _Kept | Outcome:
        if (settled := _settled(known, announced)) is not None:
            return settled
        around = await sight.around(announced)
        if not can_be_kept(announced, around):
            return _Kept(around=around)
        if known is not None and known.status == "registered":
            return _Kept(around=around, adapter=known)
        now_s = self._clock.wall_s()
        step = lifecycle.begin(known.status if known else None, now_s, self._policy.verification_deadline_s)
        return _Kept(around=around, adapter=records.registered(announced, step), begun=step)

    async def _verified(self, announced: AdapterRegistered, kept: _Kept, by_event: bool) -> Outcome:
        if kept.adapter is None:
            return await self._verifications.verify_unkept(announced, kept.around)
        if by_event and kept.begun is None:
            return Registered(adapter=kept.adapter, created=False)  # told again, while it is attended to
        try:
            return await self._verifications.verify(announced, kept.around, told=by_event)
        except (StoreUnavailable, SourceUnavailable) as error:
            if not by_event:
                raise
            _log.warning("an adapter waits to be verified", adapter_id=announced.adapter_id, error=error)
            return Registered(adapter=kept.adapter, created=True)

    async def _tell_denied(self, announced: AdapterRegistered, why: Denied) -> None:
        """An event has nobody who reads an answer: that its id is taken must come as a fact."""
        taken = defect("adapter_id_taken", why.message, why.field, found="a registered id", allowed="a new id")
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.rejected(announced, (taken,))], self._clock.wall_s())


def can_be_kept(announced: AdapterRegistered, around: Surroundings) -> bool:
    """Whether there is an id to keep it under; what else is wrong with it is told by its verification."""
    return not check_identity(announced, around.tenant_known) and records.fits_a_record(announced)


def _settled(known: StoredAdapter | None, announced: AdapterRegistered) -> Outcome | None:
    """The outcome if this id was decided about before. A rejected announcement decided nothing."""
    if known is None or known.status == "rejected":
        return None
    if (conflict := records.conflict(known.announced, announced)) is not None:
        return conflict
    return None if known.status == "registered" else Registered(adapter=known, created=False)
