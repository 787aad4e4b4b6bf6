"""Aliases and what they meant before."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.aliases import AliasState
from services.registry.io.rows import columns_of
from services.registry.io.tables import ALIAS_HISTORY, ALIASES


async def find(connection: AsyncConnection, alias: str, *, to_change: bool = False) -> AliasState | None:
    """With `to_change` nobody else changes it before this transaction ends."""
    query = select(ALIASES).where(ALIASES.c.alias == alias)
    row = (await connection.execute(query.with_for_update() if to_change else query)).first()
    return None if row is None else _state(row)


async def listed(connection: AsyncConnection, tenant_id: str | None = None) -> list[AliasState]:
    query = select(ALIASES).order_by(ALIASES.c.alias)
    if tenant_id is not None:
        query = query.where(ALIASES.c.tenant_id == tenant_id)
    return [_state(row) for row in await connection.execute(query)]


async def naming(connection: AsyncConnection, adapter_id: str) -> list[str]:
    """The aliases that mean this adapter now."""
    rows = await connection.execute(select(ALIASES.c.alias).where(ALIASES.c.adapter_id == adapter_id))
    return sorted(rows.scalars())


async def save(connection: AsyncConnection, state: AliasState, reason: str) -> None:
    """A new alias that another transaction has written as well is a Collision."""
    values = msgspec.to_builtins(state)
    changed = await connection.execute(update(ALIASES).where(ALIASES.c.alias == state.alias).values(values))
    if changed.rowcount == 0:
        await connection.execute(insert(ALIASES).values(values))
    await _remember(connection, state.alias, state.adapter_id, reason, state.updated_at_s)


async def remove(connection: AsyncConnection, alias: str, reason: str, now_s: float) -> None:
    await connection.execute(delete(ALIASES).where(ALIASES.c.alias == alias))
    await _remember(connection, alias, None, reason, now_s)


async def _remember(connection: AsyncConnection, alias: str, adapter_id: str | None, reason: str, now_s: float) -> None:
    values = {"alias": alias, "adapter_id": adapter_id, "reason": reason, "at_s": now_s}
    await connection.execute(insert(ALIAS_HISTORY).values(values))


def _state(row: Row[Any]) -> AliasState:
    return msgspec.convert(columns_of(row), AliasState)
