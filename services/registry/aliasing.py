"""Aliases: deploying a version, going back, and taking a name away."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import unknown_adapter
from services.registry.alias_changes import write_change, write_removal
from services.registry.core import aliases, records
from services.registry.core.aliases import AliasChange, AliasState, Change, Denied
from services.registry.core.defects import quoted
from services.registry.io import adapter_rows, alias_rows, base_model_rows
from services.registry.io.alias_rows import AliasFilter
from services.registry.io.database import Database
from shared.runtime.clock import Clock

OPERATOR = "operator"
"""Who changes an alias if nobody says."""


class Aliasing:
    """Everything here may raise DatabaseUnavailable, or Collision if two create one alias at once; nothing
    was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def deploy(self, alias: str, adapter_id: str, *, change: Change) -> AliasState | Denied:
        """From now on the alias means this adapter; requests that run keep the one they began with."""
        async with self._database.write() as connection:
            decided = await _decide_set(connection, alias, adapter_id, change)
            if isinstance(decided, Denied):
                return decided
            return await write_change(connection, decided, change, self._clock.wall_s())

    async def roll_back(self, alias: str, *, change: Change) -> AliasState | Denied:
        """The alias means again what it meant before its last change."""
        async with self._database.write() as connection:
            decided = await _decide_rollback(connection, alias, change)
            if isinstance(decided, Denied):
                return decided
            return await write_change(connection, decided, change, self._clock.wall_s())

    async def remove(self, alias: str, *, change: Change) -> AliasState | Denied:
        """The alias means nothing any more; what it meant last is returned."""
        async with self._database.write() as connection:
            current = await alias_rows.find(connection, alias, to_change=True)
            if (fault := aliases.expectation_fault(current, alias, change)) is not None:
                return fault
            if current is None:
                return _unknown_alias(alias)
            await write_removal(connection, current, change, self._clock.wall_s())
            return current

    async def listed(self, wanted: AliasFilter) -> list[AliasState]:
        async with self._database.read() as connection:
            return await alias_rows.listed(connection, wanted)


async def _decide_set(connection: AsyncConnection, alias: str, adapter_id: str, asked: Change) -> AliasChange | Denied:
    fault = aliases.name_fault(alias, None, await base_model_rows.names(connection))
    if fault is not None:
        return fault
    adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
    if adapter is None:
        return unknown_adapter(adapter_id)
    current = await alias_rows.find(connection, alias, to_change=True)
    return aliases.decide_set(current, records.candidate(adapter), alias, asked)


async def _decide_rollback(connection: AsyncConnection, alias: str, asked: Change) -> AliasChange | Denied:
    current = await alias_rows.find(connection, alias, to_change=True)
    if current is None:
        return _unknown_alias(alias)
    adapter = await adapter_rows.find(connection, current.previous_adapter_id or "", to_change=True)
    if adapter is None:
        return aliases.nothing_before(alias)
    return aliases.decide_rollback(current, records.candidate(adapter), asked)


def _unknown_alias(alias: str) -> Denied:
    return Denied(kind="missing", code="alias_unknown", message=f"There is no alias {quoted(alias)}.")
