"""How evaluations begin and end: by the gate, by what a pipeline signed, or by a person."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.adapters import unknown_adapter
from services.registry.core import lifecycle, records, turns
from services.registry.core.deployment.aliases import Denied
from services.registry.core.gating.gate import Report
from services.registry.core.gating.overrides import Override, base_retired, decide_override
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter
from services.registry.gating.attempts import Conclusion
from services.registry.io import adapter_rows, base_model_rows, evaluation_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.io.notes import Note
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """Where an adapter's evaluation stands: its reports, the latest first, and who overrode them."""

    adapter: StoredAdapter
    reports: list[Report]
    override: Move | None


class VerdictPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long an evaluation may take once its turn has come, and a pipeline for its results once a replica has
    measured its adapter."""

    evaluation_deadline_s: float
    results_deadline_s: float


class Verdicts:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock, meters: Meters, policy: VerdictPolicy) -> None:
        self._database = database
        self._clock = clock
        self._meters = meters
        self._policy = policy

    async def begin(self, adapter_id: str) -> StoredAdapter | None:
        """The adapter as it is now, moved on to "evaluating" if it is still verified."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status != "verified":
                return adapter
            step = lifecycle.move(adapter.status, "evaluating", "asking replicas of its pool", now_s)
            step = msgspec.structs.replace(step, deadline_s=now_s + self._policy.evaluation_deadline_s)
            moved = records.after_move(adapter, step)
            await adapter_rows.save(connection, moved, [step])
            await outbox_rows.append(connection, facts.evaluating(moved), now_s)
        return moved

    async def conclude(self, adapter_id: str, found: Conclusion) -> None:
        """Of an adapter that is still being evaluated; one that has moved on stays where it is."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status != "evaluating":
                return
            if found.measured is not None:
                adapter = records.measured(adapter, found.measured)
                await adapter_rows.add_evaluation(connection, found.measured, now_s)
            if found.state == "evaluating":
                await self._await_results(connection, adapter, found, now_s)
            else:
                await end_evaluation(connection, adapter, found, now_s)
        if found.state != "evaluating":
            self.tell_ended(adapter, found)

    async def override(self, adapter_id: str, wish: Override) -> StoredAdapter | Denied:
        """A person activates what the gate would not; the history and the fact say who and why."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None:
                return unknown_adapter(adapter_id)
            if await base_model_rows.find(connection, adapter.announced.base_model_hash) is None:
                return base_retired(adapter)
            history = await adapter_rows.history(connection, adapter_id)
            measured = await adapter_rows.evaluations(connection, adapter_id)
            step = decide_override(adapter, history, measured[-1] if measured else None, wish, now_s)
            if isinstance(step, Denied):
                return step
            active = records.after_move(adapter, step)
            await adapter_rows.save(connection, active, [step])
            await outbox_rows.append(connection, facts.activated(active, wish), now_s)
        _log.warning("an evaluation was overridden", adapter_id=adapter_id, by=wish.by, reason=wish.reason)
        self._tell_active(active)
        self._meters.evaluated("overridden")
        return active

    async def reports(self, adapter_id: str, limit: int) -> Reports | Denied:
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, adapter_id)
            if adapter is None:
                return unknown_adapter(adapter_id)
            history = await adapter_rows.history(connection, adapter_id)
            found = await evaluation_rows.reports(connection, adapter_id, limit)
        overridden = (step for step in reversed(history) if step.state == "active" and step.actor)
        return Reports(adapter=adapter, reports=found, override=next(overridden, None))

    def tell_ended(self, adapter: StoredAdapter, found: Conclusion) -> None:
        """Once the transaction of `end_evaluation` is committed."""
        if found.state == "active":
            self._tell_active(adapter)
        self._meters.evaluated(found.state)
        _log.info("an evaluation ended", adapter_id=adapter.adapter_id, state=found.state, reason=found.reason)

    async def _await_results(
        self, connection: AsyncConnection, adapter: StoredAdapter, found: Conclusion, now_s: float
    ) -> None:
        waiting = msgspec.structs.replace(
            adapter, deadline_s=now_s + self._policy.results_deadline_s, reason=found.reason
        )
        await adapter_rows.save(connection, waiting, [])
        notes = await _keep_reports(connection, waiting, found, now_s)
        await outbox_rows.append(connection, [*notes, facts.held(waiting)], now_s)

    def _tell_active(self, adapter: StoredAdapter) -> None:
        if adapter.announced.alias is not None:
            self._database.changes.tell_activated(turns.entrant(adapter.announced))


async def end_evaluation(
    connection: AsyncConnection, adapter: StoredAdapter, found: Conclusion, now_s: float
) -> StoredAdapter:
    """In the caller's transaction: the adapter as concluded, its reports, and what the bus is told."""
    step = lifecycle.move(adapter.status, found.state, found.reason, now_s)
    ended = records.after_move(adapter, step)
    await adapter_rows.save(connection, ended, [step])
    notes = await _keep_reports(connection, ended, found, now_s)
    notes += facts.activated(ended) if found.state == "active" else facts.failed(ended)
    await outbox_rows.append(connection, notes, now_s)
    return ended


async def _keep_reports(
    connection: AsyncConnection, adapter: StoredAdapter, found: Conclusion, now_s: float
) -> list[Note]:
    """The last report is the one that decided, and the one that is told."""
    for report in found.reports:
        kept = msgspec.structs.replace(report, at_s=now_s)
        await evaluation_rows.add_report(connection, adapter.adapter_id, kept)
    return [facts.evaluated(adapter, report) for report in found.reports[-1:]]
