"""What the tables of adapters and aliases say of some items of a migration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.base_migration.move_items import Item, Successor
from services.registry.io.tables import ADAPTER_STATES, ADAPTERS, ALIAS_HISTORY, ALIASES

PAGE = 200
"""Items that are looked at together: databases bound the parameters of a statement, and others wait meanwhile."""
_MOST_ROWS = 5_000
"""Changes that are followed one by one; no database takes so many between two looks that are a second apart."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The last row numbers of what happened to aliases and to adapters: rows are committed in their order."""

    aliases: int
    adapters: int


class Sights(msgspec.Struct, frozen=True, kw_only=True):
    """By adapter of the old base: the aliases that mean it, and who was announced as its successor; and of the aliases
    that have ever meant one of them, those that mean a version on the new base now."""

    naming: dict[str, set[str]]
    successors: dict[str, list[Successor]]
    moved: frozenset[str]


async def marks(connection: AsyncConnection) -> Marks:
    """Found without looking at any alias or adapter."""
    aliases = (await connection.execute(select(func.max(ALIAS_HISTORY.c.row_id)))).scalar_one()
    adapters = (await connection.execute(select(func.max(ADAPTER_STATES.c.row_id)))).scalar_one()
    return Marks(aliases=aliases or 0, adapters=adapters or 0)


async def touched(connection: AsyncConnection, since: Marks) -> list[str] | None:
    """The adapters whose items may have to follow: all that an alias which changed has ever meant, and those that came
    to another state, with what they succeed. None if so much has happened that all may as well be looked at."""
    past, states = ALIAS_HISTORY.c, ADAPTER_STATES.c
    aliases = await _since(connection, past.row_id, since.aliases, past.alias)
    moved = await _since(connection, states.row_id, since.adapters, states.adapter_id)
    if aliases is None or moved is None:
        return None
    found = set(moved)
    for query, column, names in (
        (select(past.adapter_id, past.split_adapter_id), past.alias, sorted(aliases)),
        (select(ADAPTERS.c.predecessor_id), ADAPTERS.c.adapter_id, sorted(moved)),
    ):
        for at in range(0, len(names), PAGE):
            rows = await connection.execute(query.where(column.in_(names[at : at + PAGE])))
            found.update(adapter_id for row in rows for adapter_id in row if adapter_id is not None)
    return sorted(found)


async def _since(connection: AsyncConnection, row_id: Column[Any], last: int, name: Column[Any]) -> set[str] | None:
    """The names in the rows behind this one, None if there are very many of those."""
    query = select(name).where(row_id > last).order_by(row_id).limit(_MOST_ROWS)
    names = list((await connection.execute(query)).scalars())
    return None if len(names) == _MOST_ROWS else set(names)


async def look(connection: AsyncConnection, items: Sequence[Item], to_base_model_hash: str) -> Sights:
    """Of PAGE items at most."""
    adapter_ids = [item.adapter_id for item in items]
    known = sorted({alias for item in items for alias in (*item.aliases, *item.moved)})
    return Sights(
        naming=await naming(connection, adapter_ids),
        successors=await _successors(connection, adapter_ids, to_base_model_hash),
        moved=await _moved(connection, known, to_base_model_hash),
    )


async def naming(connection: AsyncConnection, adapter_ids: Sequence[str]) -> dict[str, set[str]]:
    """The aliases by which a request may reach each adapter."""
    wanted = set(adapter_ids)
    means = or_(ALIASES.c.adapter_id.in_(adapter_ids), ALIASES.c.split_adapter_id.in_(adapter_ids))
    query = select(ALIASES.c.alias, ALIASES.c.adapter_id, ALIASES.c.split_adapter_id).where(means)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in await connection.execute(query):
        for adapter_id in wanted & {row.adapter_id, row.split_adapter_id}:
            found[adapter_id].add(row.alias)
    return found


async def _successors(
    connection: AsyncConnection, adapter_ids: Sequence[str], to_base_model_hash: str
) -> dict[str, list[Successor]]:
    columns = ("adapter_id", "status", "reason", "registered_at_s")
    here = and_(ADAPTERS.c.predecessor_id.in_(adapter_ids), ADAPTERS.c.base_model_hash == to_base_model_hash)
    query = select(ADAPTERS.c.predecessor_id, *(ADAPTERS.c[name] for name in columns)).where(here)
    found: defaultdict[str, list[Successor]] = defaultdict(list)
    for row in await connection.execute(query):
        found[row.predecessor_id].append(Successor(**{name: row._mapping[name] for name in columns}))
    return found


async def _moved(connection: AsyncConnection, known: Sequence[str], to_base_model_hash: str) -> frozenset[str]:
    moved: set[str] = set()
    query = select(ALIASES.c.alias).join(ADAPTERS, ADAPTERS.c.adapter_id == ALIASES.c.adapter_id)
    for at in range(0, len(known), PAGE):
        here = and_(ALIASES.c.alias.in_(known[at : at + PAGE]), ADAPTERS.c.base_model_hash == to_base_model_hash)
        moved.update((await connection.execute(query.where(here))).scalars())
    return frozenset(moved)
