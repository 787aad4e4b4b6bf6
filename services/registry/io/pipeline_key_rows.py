"""Whose signatures under evaluation results are believed."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.evaluation_tables import PIPELINE_KEYS
from services.registry.io.rows import columns_of


class PipelineKey(msgspec.Struct, frozen=True, kw_only=True):
    """`public_key` in hex; `tenant_id` "" may sign for everybody's adapters."""

    key_id: str
    name: str
    public_key: str
    tenant_id: str = ""
    created_at_s: float = 0.0


async def find(connection: AsyncConnection, key_id: str) -> PipelineKey | None:
    row = (await connection.execute(select(PIPELINE_KEYS).where(PIPELINE_KEYS.c.key_id == key_id))).first()
    return None if row is None else msgspec.convert(columns_of(row), PipelineKey)


async def listed(connection: AsyncConnection) -> list[PipelineKey]:
    query = select(PIPELINE_KEYS).order_by(PIPELINE_KEYS.c.created_at_s, PIPELINE_KEYS.c.key_id)
    return [msgspec.convert(columns_of(row), PipelineKey) for row in await connection.execute(query)]


async def add(connection: AsyncConnection, key: PipelineKey) -> None:
    """One that is there already is a Collision."""
    await connection.execute(insert(PIPELINE_KEYS).values(msgspec.to_builtins(key)))


async def remove(connection: AsyncConnection, key_id: str) -> bool:
    """Whether there was one."""
    gone = await connection.execute(delete(PIPELINE_KEYS).where(PIPELINE_KEYS.c.key_id == key_id))
    return gone.rowcount > 0
