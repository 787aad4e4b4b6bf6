"""Aliases and what they meant before."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.deployment.aliases import AliasState
from services.registry.io.rows import columns_of
from services.registry.io.tables import ALIAS_HISTORY, ALIASES
from shared.messages.aliases import AliasMoved


class AliasFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which aliases to list, by name; `after` is the last one of the page before."""

    tenant_id: str | None = None
    after: str = ""
    limit: int | None = None


class PastChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change as it was: who made it, why, and what the alias meant from then on. `adapter_id` None: nothing."""

    row_id: int
    change: str
    revision: int
    adapter_id: str | None
    previous_adapter_id: str | None
    split_adapter_id: str | None
    split_percent: float
    actor: str
    reason: str
    at_s: float


async def find(connection: AsyncConnection, alias: str, *, to_change: bool = False) -> AliasState | None:
    """With `to_change` nobody else changes it before this transaction ends."""
    query = select(ALIASES).where(ALIASES.c.alias == alias)
    row = (await connection.execute(query.with_for_update() if to_change else query)).first()
    return None if row is None else _state(row)


async def listed(connection: AsyncConnection, wanted: AliasFilter | None = None) -> list[AliasState]:
    """All of them without a filter."""
    wanted = wanted or AliasFilter()
    query = select(ALIASES).where(ALIASES.c.alias > wanted.after).order_by(ALIASES.c.alias)
    if wanted.tenant_id is not None:
        query = query.where(ALIASES.c.tenant_id == wanted.tenant_id)
    return [_state(row) for row in await connection.execute(query.limit(wanted.limit))]


async def guarded(connection: AsyncConnection) -> list[AliasState]:
    """Those that go back by themselves on some condition."""
    return [_state(row) for row in await connection.execute(select(ALIASES).where(ALIASES.c.guard.is_not(None)))]


async def naming(connection: AsyncConnection, adapter_id: str) -> list[str]:
    """The aliases that mean this adapter now, for all sessions or for some."""
    means = or_(ALIASES.c.adapter_id == adapter_id, ALIASES.c.split_adapter_id == adapter_id)
    return sorted((await connection.execute(select(ALIASES.c.alias).where(means))).scalars())


async def guarding(connection: AsyncConnection, adapter_id: str) -> list[str]:
    """The aliases that would go back to this adapter by themselves."""
    goes_back = ALIASES.c.guard.is_not(None) & (ALIASES.c.previous_adapter_id == adapter_id)
    return sorted((await connection.execute(select(ALIASES.c.alias).where(goes_back))).scalars())


async def last_revision(connection: AsyncConnection, alias: str) -> int:
    """Of all that the alias ever meant, also before it was removed: a revision is never given twice."""
    query = select(func.max(ALIAS_HISTORY.c.revision)).where(ALIAS_HISTORY.c.alias == alias)
    return (await connection.execute(query)).scalar_one() or 0


async def save(connection: AsyncConnection, state: AliasState, moved: AliasMoved) -> None:
    """A new alias that another transaction has written as well is a Collision."""
    values = msgspec.to_builtins(state)
    changed = await connection.execute(update(ALIASES).where(ALIASES.c.alias == state.alias).values(values))
    if changed.rowcount == 0:
        await connection.execute(insert(ALIASES).values(values))
    await _remember(connection, moved)


async def remove(connection: AsyncConnection, moved: AliasMoved) -> None:
    await connection.execute(delete(ALIASES).where(ALIASES.c.alias == moved.alias))
    await _remember(connection, moved)


async def history(
    connection: AsyncConnection, alias: str, *, before: int | None = None, limit: int | None = None
) -> list[PastChange]:
    """Newest first; `before` is the last `row_id` of the page before."""
    query = select(ALIAS_HISTORY).where(ALIAS_HISTORY.c.alias == alias).order_by(ALIAS_HISTORY.c.row_id.desc())
    if before is not None:
        query = query.where(ALIAS_HISTORY.c.row_id < before)
    rows = await connection.execute(query.limit(limit))
    return [msgspec.convert(columns_of(row), PastChange) for row in rows]


async def _remember(connection: AsyncConnection, moved: AliasMoved) -> None:
    values = msgspec.to_builtins(moved)
    del values["tenant_id"]
    await connection.execute(insert(ALIAS_HISTORY).values(values))


def _state(row: Row[Any]) -> AliasState:
    return msgspec.convert(columns_of(row), AliasState)
