"""What verifications found, put on record: an adapter is verified or rejected."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import lifecycle, records, turns
from services.registry.core.records import Content, StoredAdapter
from services.registry.io import adapter_rows, outbox_rows, upload_rows
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.io.notes import Note
from services.registry.registration.batches import Batches
from services.registry.registration.outcomes import Outcome, Registered, RegistrationPolicy, Rejected, settled_outcome
from shared.messages.adapters import AdapterRegistered, Defect
from shared.runtime.clock import Clock


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Of an announcement: its file's content, which is in the store, or its defects. The bus was `told` of it if it
    came by an event."""

    announced: AdapterRegistered
    found: Content | tuple[Defect, ...]
    told: bool = False


class _Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`moved` is None if it had been decided about meanwhile."""

    outcome: Outcome
    moved: adapter_rows.Moved | None = None
    notes: tuple[Note, ...] = ()


class Findings:
    """Of whatever ends at the same time, in one transaction."""

    def __init__(self, database: Database, clock: Clock, policy: RegistrationPolicy, meters: Meters) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._deciding = Batches(database, self._decide_all)

    async def stop(self) -> None:
        """What is being written is written."""
        await self._deciding.stop()

    async def record(self, finding: Finding) -> Outcome:
        """Of an announcement that is kept. Raises DatabaseUnavailable: it is still registered then."""
        decision = await self._deciding.add(finding)
        if decision.moved is not None:
            good = isinstance(finding.found, Content)
            self._meters.registered("registered" if good else "rejected")
            if good:
                self._database.changes.tell_verified(turns.entrant(finding.announced))
        return decision.outcome

    async def refuse(self, announced: AdapterRegistered, defects: tuple[Defect, ...]) -> Outcome:
        """Of an announcement that is not kept. Raises DatabaseUnavailable."""
        async with self._database.write() as connection:
            await outbox_rows.append(connection, [facts.rejected(announced, defects)], self._clock.wall_s())
        self._meters.registered("rejected")
        return Rejected(adapter_id=announced.adapter_id, defects=defects)

    async def _decide_all(self, connection: AsyncConnection, findings: Sequence[Finding]) -> list[_Decision]:
        ids = [finding.announced.adapter_id for finding in findings]
        known, now_s = await adapter_rows.among(connection, ids, to_change=True), self._clock.wall_s()
        decisions = [self._decide(finding, known, now_s) for finding in findings]
        moved = [one.moved for one in decisions if one.moved is not None]
        await adapter_rows.change_all(connection, moved)
        await upload_rows.forget(connection, {adapter.digest for adapter, _ in moved if adapter.store_key})
        await outbox_rows.append(connection, [note for one in decisions for note in one.notes], now_s)
        return decisions

    def _decide(self, finding: Finding, known: dict[str, StoredAdapter], now_s: float) -> _Decision:
        announced = finding.announced
        if (before := known.get(announced.adapter_id)) is None:
            raise LookupError(f"{announced.adapter_id} is verified without having been kept")
        if (settled := settled_outcome(before, announced)) is not None:
            return _Decision(outcome=settled)
        if not isinstance(finding.found, Content):
            return _rejected(announced, finding.found, now_s)
        step = lifecycle.verify("every check passed", now_s, self._policy.evaluation_deadline_s)
        adapter = records.accepted(before, announced, finding.found, step)
        told = () if finding.told else (facts.announced(announced),)
        return _Decision(
            outcome=Registered(adapter=adapter, created=True),
            moved=(adapter, step),
            notes=(*told, *facts.verified(adapter)),
        )


def _rejected(announced: AdapterRegistered, defects: tuple[Defect, ...], now_s: float) -> _Decision:
    step = lifecycle.move("registered", "rejected", defects[0].message, now_s)
    return _Decision(
        outcome=Rejected(adapter_id=announced.adapter_id, defects=defects),
        moved=(records.rejected(announced, defects, step), step),
        notes=(facts.rejected(announced, defects),),
    )
