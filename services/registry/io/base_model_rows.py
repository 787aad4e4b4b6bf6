"""Base models."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.base_migration.bases import StoredBase
from services.registry.io.rows import EVERYTHING, Page, columns_of
from services.registry.io.tables import BASE_MODELS
from shared.messages.desired import BaseModelRecord


async def find(connection: AsyncConnection, base_model_hash: str, *, to_change: bool = False) -> BaseModelRecord | None:
    """One that is not retired. With `to_change` nobody else changes it before this transaction ends."""
    found = await stored(connection, base_model_hash, to_change=to_change)
    return found.record if found is not None and found.retired_at_s is None else None


async def stored(connection: AsyncConnection, base_model_hash: str, *, to_change: bool = False) -> StoredBase | None:
    """Retired or not."""
    query = select(BASE_MODELS).where(BASE_MODELS.c.base_model_hash == base_model_hash)
    row = (await connection.execute(query.with_for_update() if to_change else query)).first()
    return None if row is None else _stored(row)


async def listed(connection: AsyncConnection, page: Page = EVERYTHING) -> list[BaseModelRecord]:
    """By name, without those that are retired."""
    query = select(BASE_MODELS).where(BASE_MODELS.c.retired_at_s.is_(None))
    return [_stored(row).record for row in await connection.execute(page.of(query, BASE_MODELS.c.name))]


async def every(connection: AsyncConnection, page: Page = EVERYTHING) -> list[StoredBase]:
    """By name, those that are retired as well."""
    return [_stored(row) for row in await connection.execute(page.of(select(BASE_MODELS), BASE_MODELS.c.name))]


async def names(connection: AsyncConnection) -> frozenset[str]:
    return frozenset((await connection.execute(select(BASE_MODELS.c.name))).scalars())


async def save(connection: AsyncConnection, record: BaseModelRecord) -> bool:
    """Whether the base model is new. One that was retired is so no more."""
    values = {**msgspec.to_builtins(record), "retired_at_s": None}
    here = BASE_MODELS.c.base_model_hash == record.base_model_hash
    changed = await connection.execute(update(BASE_MODELS).where(here).values(values))
    if changed.rowcount == 0:
        await connection.execute(insert(BASE_MODELS).values(values))
    return changed.rowcount == 0


async def retire(connection: AsyncConnection, base_model_hash: str, now_s: float) -> None:
    here = BASE_MODELS.c.base_model_hash == base_model_hash
    await connection.execute(update(BASE_MODELS).where(here).values(retired_at_s=now_s))


def _stored(row: Row[Any]) -> StoredBase:
    return StoredBase(record=msgspec.convert(columns_of(row), BaseModelRecord), retired_at_s=row.retired_at_s)
