"""Migrations and their items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, and_, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.base_migration.move_items import Item
from services.registry.core.base_migration.move_progress import StateCount
from services.registry.core.base_migration.moves import OPEN, Migration
from services.registry.io.migration_tables import MIGRATION_ITEMS, MIGRATIONS
from services.registry.io.pointer_rows import of_base
from services.registry.io.rows import columns_of
from services.registry.io.tables import ADAPTERS
from shared.messages.desired import BaseModelRecord

_ITEMS = MIGRATION_ITEMS.c


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items to list, by adapter; `after` is the last one of the page before."""

    states: tuple[str, ...] = ()
    after: str = ""
    limit: int | None = None


async def find(connection: AsyncConnection, migration_id: str, *, to_change: bool = False) -> Migration | None:
    """With `to_change` nobody else changes it before this transaction ends."""
    query = select(MIGRATIONS).where(MIGRATIONS.c.migration_id == migration_id)
    row = (await connection.execute(query.with_for_update() if to_change else query)).first()
    return None if row is None else _migration(row)


async def listed(connection: AsyncConnection) -> list[Migration]:
    """The newest first."""
    query = select(MIGRATIONS).order_by(MIGRATIONS.c.created_at_s.desc(), MIGRATIONS.c.migration_id)
    return [_migration(row) for row in await connection.execute(query)]


async def opened(connection: AsyncConnection) -> list[Migration]:
    query = select(MIGRATIONS).where(MIGRATIONS.c.state.in_(OPEN)).order_by(MIGRATIONS.c.created_at_s)
    return [_migration(row) for row in await connection.execute(query)]


async def add(connection: AsyncConnection, migration: Migration) -> None:
    await connection.execute(insert(MIGRATIONS).values(msgspec.to_builtins(migration)))


async def save(connection: AsyncConnection, migration: Migration) -> None:
    here = MIGRATIONS.c.migration_id == migration.migration_id
    await connection.execute(update(MIGRATIONS).where(here).values(msgspec.to_builtins(migration)))


async def items(connection: AsyncConnection, migration_id: str, wanted: ItemFilter) -> list[Item]:
    query = select(MIGRATION_ITEMS).where(_ITEMS.migration_id == migration_id, _ITEMS.adapter_id > wanted.after)
    if wanted.states:
        query = query.where(_ITEMS.state.in_(wanted.states))
    rows = await connection.execute(query.order_by(_ITEMS.adapter_id).limit(wanted.limit))
    return [_item(row) for row in rows]


async def item_ids(connection: AsyncConnection, migration_id: str, after: str, limit: int) -> list[str]:
    """The adapters of a page of items."""
    here = and_(_ITEMS.migration_id == migration_id, _ITEMS.adapter_id > after)
    query = select(_ITEMS.adapter_id).where(here).order_by(_ITEMS.adapter_id).limit(limit)
    return list((await connection.execute(query)).scalars())


async def among(connection: AsyncConnection, migration_id: str, adapter_ids: Sequence[str]) -> list[Item]:
    """The items of these adapters, as many as one statement takes."""
    here = and_(_ITEMS.migration_id == migration_id, _ITEMS.adapter_id.in_(adapter_ids))
    return [_item(row) for row in await connection.execute(select(MIGRATION_ITEMS).where(here))]


async def add_items(connection: AsyncConnection, found: Sequence[Item]) -> None:
    """One that another transaction has added as well is a Collision."""
    if found:
        await connection.execute(insert(MIGRATION_ITEMS), [_values(item) for item in found])


async def save_item(connection: AsyncConnection, was: Item, now: Item) -> bool:
    """False, and nothing is written, if somebody else has brought it to another state meanwhile."""
    same = and_(_ITEMS.migration_id == was.migration_id, _ITEMS.adapter_id == was.adapter_id, _ITEMS.state == was.state)
    return (await connection.execute(update(MIGRATION_ITEMS).where(same).values(_values(now)))).rowcount > 0


async def counts(connection: AsyncConnection, migration_id: str) -> list[StateCount]:
    named = func.sum(case((_ITEMS.aliases_left > 0, 1), else_=0))
    query = select(
        _ITEMS.state,
        func.count().label("items"),
        named.label("named"),
        func.sum(_ITEMS.aliases_left).label("aliases_left"),
        func.sum(_ITEMS.aliases_moved).label("aliases_moved"),
    ).where(_ITEMS.migration_id == migration_id)
    rows = await connection.execute(query.group_by(_ITEMS.state))
    return [msgspec.convert(columns_of(row), StateCount) for row in rows]


async def requested_before(connection: AsyncConnection, migration_id: str, at_s: float) -> int:
    waiting = and_(_ITEMS.migration_id == migration_id, _ITEMS.state == "requested", _ITEMS.updated_at_s < at_s)
    return (await connection.execute(select(func.count()).where(waiting))).scalar_one()


async def newcomers(
    connection: AsyncConnection, migration_id: str, base: BaseModelRecord, adapter_ids: Sequence[str] | None = None
) -> dict[str, str]:
    """Active adapters of the old base (or those of them that are named) that have no item yet, with their tenants."""
    mine = and_(_ITEMS.adapter_id == ADAPTERS.c.adapter_id, _ITEMS.migration_id == migration_id)
    query = select(ADAPTERS.c.adapter_id, ADAPTERS.c.tenant_id).outerjoin(MIGRATION_ITEMS, mine)
    fresh = query.where(of_base(base), ADAPTERS.c.status == "active", _ITEMS.adapter_id.is_(None))
    if adapter_ids is not None:
        fresh = fresh.where(ADAPTERS.c.adapter_id.in_(adapter_ids))
    rows = await connection.execute(fresh.order_by(ADAPTERS.c.adapter_id))
    return {row.adapter_id: row.tenant_id for row in rows}


def _values(item: Item) -> dict[str, Any]:
    counted = {"aliases_left": len(item.aliases), "aliases_moved": len(item.moved)}
    return {**msgspec.to_builtins(item), **counted}


def _migration(row: Row[Any]) -> Migration:
    return msgspec.convert(columns_of(row), Migration)


def _item(row: Row[Any]) -> Item:
    return msgspec.convert(columns_of(row), Item)
