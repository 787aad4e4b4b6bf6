"""Who points at the adapters of a base model. Every query follows the index on pools: a base has few of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.base_migration.moves import OPEN
from services.registry.core.base_migration.pointers import Pointer
from services.registry.core.lifecycle import HELD
from services.registry.io.migration_tables import MIGRATIONS
from services.registry.io.tables import ADAPTERS, ALIASES
from shared.messages.desired import BaseModelRecord
from shared.messages.pools import pool_id

_SETTLING = ("registered", "verified", "evaluating")


def of_base(base: BaseModelRecord) -> ColumnElement[bool]:
    """The adapters that were verified for this base. Its rank classes are only ever added to, so these are its pools;
    the hash tells bases apart that share the digits of a pool's name."""
    pools = [pool_id(base.base_model_hash, rank_class) for rank_class in base.rank_classes]
    return and_(ADAPTERS.c.pool_id.in_(pools), ADAPTERS.c.base_model_hash == base.base_model_hash)


async def aliases(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """What a request under an alias may reach on this base: the alias's own version, or its split's."""
    return [
        *await _naming(connection, base, "alias", ALIASES.c.adapter_id),
        *await _naming(connection, base, "split", ALIASES.c.split_adapter_id),
    ]


async def guards(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """Aliases that would go back to a version on this base by themselves."""
    return await _naming(connection, base, "guard", ALIASES.c.previous_adapter_id, ALIASES.c.guard.is_not(None))


async def rollbacks(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """Ways back to a version that could still be gone back to."""
    return await _naming(
        connection, base, "rollback", ALIASES.c.previous_adapter_id, ADAPTERS.c.status.in_(("active", "failed"))
    )


async def adapters(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """Every version that is active, or may become so."""
    active = and_(of_base(base), ADAPTERS.c.status == "active")
    return [*await _adapters(connection, active), *await settling(connection, base)]


async def settling(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """Versions whose checks or evaluation have not come to an end."""
    here = ADAPTERS.c.base_model_hash == base.base_model_hash
    return await _adapters(connection, and_(ADAPTERS.c.status.in_(_SETTLING), here))


async def active(connection: AsyncConnection, base: BaseModelRecord, limit: int) -> list[str]:
    """The first active versions by id."""
    here = and_(of_base(base), ADAPTERS.c.status == "active")
    query = select(ADAPTERS.c.adapter_id).where(here).order_by(ADAPTERS.c.adapter_id).limit(limit)
    return list((await connection.execute(query)).scalars())


async def count_active(connection: AsyncConnection, base: BaseModelRecord) -> int:
    query = select(func.count()).where(of_base(base), ADAPTERS.c.status == "active")
    return (await connection.execute(query)).scalar_one()


async def held(connection: AsyncConnection, base: BaseModelRecord, after: str, limit: int | None) -> list[str]:
    """The versions that replicas may hold, by id."""
    here = and_(of_base(base), ADAPTERS.c.status.in_(HELD), ADAPTERS.c.adapter_id > after)
    query = select(ADAPTERS.c.adapter_id).where(here).order_by(ADAPTERS.c.adapter_id).limit(limit)
    return list((await connection.execute(query)).scalars())


async def migrations(connection: AsyncConnection, base: BaseModelRecord) -> list[Pointer]:
    """Open migrations to or from this base."""
    ends = (MIGRATIONS.c.from_base_model_hash, MIGRATIONS.c.to_base_model_hash)
    query = select(MIGRATIONS.c.migration_id, *ends).where(MIGRATIONS.c.state.in_(OPEN))
    return [
        Pointer(kind="migration", name=row.migration_id)
        for row in await connection.execute(query)
        if base.base_model_hash in (row.from_base_model_hash, row.to_base_model_hash)
    ]


async def _naming(
    connection: AsyncConnection, base: BaseModelRecord, kind: str, column: Column[Any], *more: ColumnElement[bool]
) -> list[Pointer]:
    query = select(ALIASES.c.alias, column.label("names")).join(ADAPTERS, ADAPTERS.c.adapter_id == column)
    rows = await connection.execute(query.where(of_base(base), *more))
    return [Pointer(kind=kind, name=row.alias, adapter_id=row.names) for row in rows]


async def _adapters(connection: AsyncConnection, which: ColumnElement[bool]) -> list[Pointer]:
    query = select(ADAPTERS.c.adapter_id, ADAPTERS.c.status).where(which)
    rows = await connection.execute(query)
    return [Pointer(kind="adapter", name=row.status, adapter_id=row.adapter_id) for row in rows]
