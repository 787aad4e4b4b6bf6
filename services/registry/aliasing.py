"""Aliases: deploying a version, going back, and taking a name away."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.adapters import unknown_adapter
from services.registry.core import aliases, records
from services.registry.core.aliases import AliasChange, AliasState, Denied
from services.registry.core.defects import quoted
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, base_model_rows, outbox_rows
from services.registry.io.database import Database
from shared.runtime.clock import Clock


class Aliasing:
    """Everything here may raise DatabaseUnavailable, or Collision if two create one alias at once; nothing
    was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def deploy(
        self, alias: str, adapter_id: str, *, expected_adapter_id: str | None = None
    ) -> AliasState | Denied:
        """From now on the alias means this adapter; requests that run keep the one they began with."""
        async with self._database.write() as connection:
            fault = aliases.name_fault(alias, None, await base_model_rows.names(connection))
            if fault is not None:
                return fault
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None:
                return unknown_adapter(adapter_id)
            current = await alias_rows.find(connection, alias, to_change=True)
            change = aliases.decide_set(
                current, records.candidate(adapter), alias, expected_adapter_id=expected_adapter_id
            )
            return await write_change(connection, change, adapter, self._clock.wall_s())

    async def roll_back(self, alias: str) -> AliasState | Denied:
        """The alias means again what it meant before its last change."""
        async with self._database.write() as connection:
            current = await alias_rows.find(connection, alias, to_change=True)
            if current is None:
                return _unknown_alias(alias)
            adapter = await adapter_rows.find(connection, current.previous_adapter_id or "", to_change=True)
            if adapter is None:
                return aliases.nothing_before(alias)
            change = aliases.decide_rollback(current, records.candidate(adapter))
            return await write_change(connection, change, adapter, self._clock.wall_s())

    async def remove(self, alias: str) -> AliasState | Denied:
        """The alias means nothing any more; what it meant last is returned."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            current = await alias_rows.find(connection, alias, to_change=True)
            if current is None:
                return _unknown_alias(alias)
            await alias_rows.remove(connection, alias, "an operator removed it", now_s)
            await outbox_rows.append(connection, [facts.unaliased(alias)], now_s)
            return current

    async def listed(self, tenant_id: str | None = None) -> list[AliasState]:
        async with self._database.read() as connection:
            return await alias_rows.listed(connection, tenant_id)


async def write_change(
    connection: AsyncConnection, change: AliasChange | Denied, adapter: StoredAdapter, now_s: float
) -> AliasState | Denied:
    """In the caller's transaction: the alias as decided, its history, and what gateways are told."""
    if isinstance(change, Denied) or not change.changed:
        return change if isinstance(change, Denied) else change.state
    state = aliases.stamped(change.state, now_s)
    base = await base_model_rows.find(connection, adapter.announced.base_model_hash)
    if base is None:
        raise LookupError(f"adapter {adapter.adapter_id} is active without a base model")
    await alias_rows.save(connection, state, change.reason)
    await outbox_rows.append(connection, [facts.aliased(state, adapter, base)], now_s)
    return state


def _unknown_alias(alias: str) -> Denied:
    return Denied(kind="missing", code="alias_unknown", message=f"There is no alias {quoted(alias)}.")
