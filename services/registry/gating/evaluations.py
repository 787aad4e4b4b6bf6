"""Every verified adapter is measured on a replica of its pool, and examined, before it may be deployed."""

from __future__ import annotations

import msgspec

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.records import StoredAdapter
from services.registry.gating.attempts import Attempt
from services.registry.gating.gate import Gate
from services.registry.gating.verdicts import Verdicts
from services.registry.io import adapter_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.registration.hindrances import Hindrances
from shared.runtime.clock import Clock


class Evaluations:
    """Work: takes each adapter from verified to active or failed, with the deadline that it had from the start."""

    name = "evaluation"

    def __init__(
        self, database: Database, gate: Gate, verdicts: Verdicts, clock: Clock, hindrances: Hindrances
    ) -> None:
        self._database = database
        self._gate = gate
        self._verdicts = verdicts
        self._clock = clock
        self._hindrances = hindrances
        self._attempts: dict[str, Attempt] = {}
        self.news = database.changes.follow_verified()

    async def unfinished(self) -> list[str]:
        async with self._database.read() as connection:
            return await adapter_rows.ids_in(connection, lifecycle.UNFINISHED)

    async def advance(self, adapter_id: str) -> bool:
        adapter = await self._evaluating(adapter_id)
        if adapter is None or records.awaits_results(adapter):
            self._attempts.pop(adapter_id, None)
            return True
        found = await self._gate.examine(adapter, self._attempts.setdefault(adapter_id, Attempt()))
        if isinstance(found, str):
            self._hindrances.note(adapter_id, found)
            return False
        await self._verdicts.conclude(adapter_id, found)
        del self._attempts[adapter_id]
        return True

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
            await outbox_rows.append(connection, facts.evaluating(moved), now_s)
        return moved
