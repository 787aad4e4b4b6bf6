"""Every verified adapter is measured on a replica of its pool before it may be deployed."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry import facts
from services.registry.core import evaluation, lifecycle, records
from services.registry.core.evaluation import Verdict
from services.registry.core.records import StoredAdapter
from services.registry.fleet import UNANSWERED, Fleet
from services.registry.io import adapter_rows, outbox_rows
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.io.meters import Meters
from shared.messages.operations import Evaluation
from shared.runtime.clock import Clock
from shared.runtime.logs import bind, get_logger

_log = get_logger(__name__)


class EvaluationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`at_once` adapters are attended to at a time; a failed attempt is repeated after `retry_s`, then twice
    as long, up to `longest_retry_s`."""

    at_once: int
    retry_s: float
    longest_retry_s: float


class Evaluations:
    """A part that takes each adapter from verified to active or failed.

    What is under way lives in the database: a restart resumes it, with the deadline that it had.
    """

    def __init__(
        self, database: Database, fleet: Fleet, clock: Clock, policy: EvaluationPolicy, meters: Meters
    ) -> None:
        self._database = database
        self._fleet = fleet
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._verified = database.changes.follow_verified()
        self._turns = asyncio.Semaphore(policy.at_once)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Evaluations under way are left: the next start takes them up again."""
        tasks = [*self._running.values(), *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """What an earlier run left first, then each adapter as it is verified."""
        while not await self._resume():
            await self._clock.sleep_s(self._policy.retry_s)
        while True:
            self._begin(await self._verified.get())

    async def _resume(self) -> bool:
        try:
            async with self._database.read() as connection:
                unfinished = await adapter_rows.listed(connection, AdapterFilter(statuses=lifecycle.UNFINISHED))
        except DatabaseUnavailable as error:
            _log.warning("evaluations wait for the database", error=error)
            return False
        except Exception as error:
            _log.exception("evaluations cannot be resumed yet", error=error)
            return False
        for adapter in unfinished:
            self._begin(adapter.adapter_id)
        return True

    def _begin(self, adapter_id: str) -> None:
        if adapter_id not in self._running:
            self._running[adapter_id] = asyncio.create_task(self._attend(adapter_id))

    async def _attend(self, adapter_id: str) -> None:
        bind(adapter_id=adapter_id)
        pause_s = self._policy.retry_s
        try:
            while not await self._advance_safely(adapter_id):
                await self._clock.sleep_s(pause_s)
                pause_s = min(2 * pause_s, self._policy.longest_retry_s)
        finally:
            del self._running[adapter_id]

    async def _advance_safely(self, adapter_id: str) -> bool:
        """Whatever goes wrong here is tried again; the deadline of the adapter ends it."""
        try:
            async with self._turns, self._database.alone(f"evaluation of {adapter_id}") as granted:
                return granted and await self._advance(adapter_id)
        except (DatabaseUnavailable, Collision) as error:
            _log.warning("an evaluation waits for the database", error=error)
        except Exception as error:
            _log.exception("an evaluation stumbled", error=error)
        return False

    async def _advance(self, adapter_id: str) -> bool:
        """One attempt; whether the adapter has come to an end."""
        adapter = await self._evaluating(adapter_id)
        if adapter is None:
            return True
        found = await self._ask(adapter)
        if isinstance(found, Evaluation):
            await self._conclude(adapter_id, evaluation.judge(found), found)
            return True
        overdue = evaluation.judge_deadline(adapter.deadline_s or 0.0, self._clock.wall_s(), found)
        if overdue is not None:
            await self._conclude(adapter_id, overdue, None)
        return overdue is not None

    async def _evaluating(self, adapter_id: str) -> StoredAdapter | None:
        """The adapter, marked as being evaluated, or None if it needs nothing any more."""
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, adapter_id)
        if adapter is not None and adapter.status == "verified":
            adapter = await self._marked(adapter_id)
        return adapter if adapter is not None and adapter.status == "evaluating" else None

    async def _marked(self, adapter_id: str) -> StoredAdapter | None:
        """The adapter as it is now, moved on to "evaluating" if it is still verified."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status != "verified":
                return adapter
            step = lifecycle.move(adapter.status, "evaluating", "asking replicas of its pool", now_s)
            moved = records.after_move(adapter, msgspec.structs.replace(step, deadline_s=adapter.deadline_s))
            await adapter_rows.save(connection, moved, [step])
            await outbox_rows.append(connection, [facts.held(moved)], now_s)
        return moved

    async def _ask(self, adapter: StoredAdapter) -> Evaluation | str:
        """The first evaluation that a replica gives, or what stood in the way last."""
        try:
            replicas = await self._fleet.ready_replicas(adapter)
        except UNANSWERED as error:
            return f"placement was asked for replicas: {error}"
        trouble = f"no replica of pool {adapter.pool_id} is ready"
        for replica_id in replicas:
            try:
                found = await self._fleet.evaluate(replica_id, adapter)
            except UNANSWERED as error:
                trouble = f"replica {replica_id} was asked: {error}"
                _log.warning("a replica did not evaluate", replica_id=replica_id, error=error)
            else:
                return found
        return trouble

    async def _conclude(self, adapter_id: str, verdict: Verdict, found: Evaluation | None) -> None:
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status != "evaluating":
                return
            step = lifecycle.move(adapter.status, verdict.state, verdict.reason, now_s)
            ended = records.after_move(adapter if found is None else records.measured(adapter, found), step)
            await adapter_rows.save(connection, ended, [step])
            notes = facts.activated(ended) if verdict.state == "active" else facts.failed(ended)
            if found is not None:
                await adapter_rows.add_evaluation(connection, found, now_s)
                notes = [facts.evaluated(ended, found), *notes]
            await outbox_rows.append(connection, notes, now_s)
        if verdict.state == "active" and ended.announced.alias is not None:
            self._database.changes.tell_activated(adapter_id)
        self._meters.evaluated(verdict.state)
        _log.info("an evaluation ended", state=verdict.state, reason=verdict.reason)
