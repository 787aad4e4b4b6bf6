"""Base models."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.rows import columns_of
from services.registry.io.tables import BASE_MODELS
from shared.messages.desired import BaseModelRecord


async def find(connection: AsyncConnection, base_model_hash: str) -> BaseModelRecord | None:
    query = select(BASE_MODELS).where(BASE_MODELS.c.base_model_hash == base_model_hash)
    row = (await connection.execute(query)).first()
    return None if row is None else _record(row)


async def listed(connection: AsyncConnection) -> list[BaseModelRecord]:
    return [_record(row) for row in await connection.execute(select(BASE_MODELS).order_by(BASE_MODELS.c.name))]


async def names(connection: AsyncConnection) -> frozenset[str]:
    return frozenset((await connection.execute(select(BASE_MODELS.c.name))).scalars())


async def save(connection: AsyncConnection, record: BaseModelRecord) -> bool:
    """Whether the base model is new."""
    values = msgspec.to_builtins(record)
    here = BASE_MODELS.c.base_model_hash == record.base_model_hash
    changed = await connection.execute(update(BASE_MODELS).where(here).values(values))
    if changed.rowcount == 0:
        await connection.execute(insert(BASE_MODELS).values(values))
    return changed.rowcount == 0


def _record(row: Row[Any]) -> BaseModelRecord:
    return msgspec.convert(columns_of(row), BaseModelRecord)
