"""Every verified adapter is measured on a replica of its pool, and examined, before it may be deployed."""

from __future__ import annotations

from services.registry.core import lifecycle, records
from services.registry.core.records import StoredAdapter
from services.registry.core.turns import Entrant
from services.registry.gating.attempts import Attempt
from services.registry.gating.gate import Gate
from services.registry.gating.verdicts import Verdicts
from services.registry.io import adapter_rows
from services.registry.io.database import Database
from services.registry.registration.hindrances import Hindrances


class Evaluations:
    """Work: takes each adapter from verified to active or failed. Its time runs from when its turn comes."""

    name = "evaluation"
    gives_way = True

    def __init__(self, database: Database, gate: Gate, verdicts: Verdicts, hindrances: Hindrances) -> None:
        self._database = database
        self._gate = gate
        self._verdicts = verdicts
        self._hindrances = hindrances
        self._attempts: dict[str, Attempt] = {}
        self.news = database.changes.follow_verified()

    async def unfinished(self) -> list[Entrant]:
        async with self._database.read() as connection:
            return await adapter_rows.entrants(connection, lifecycle.UNFINISHED)

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
            adapter = await self._verdicts.begin(adapter_id)
        return adapter if adapter is not None and adapter.status == "evaluating" else None
