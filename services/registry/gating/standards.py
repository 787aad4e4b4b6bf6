"""What a version has to stand up to: its evaluation set, and the version that it would replace."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.records import StoredAdapter
from services.registry.gating.attempts import Standard
from services.registry.io import adapter_rows, alias_rows, evaluation_rows


async def standard_of(connection: AsyncConnection, adapter: StoredAdapter) -> Standard:
    asked = await evaluation_rows.set_for(connection, adapter.tenant_id, adapter.adapter_id)
    predecessor_id = await _predecessor_id(connection, adapter)
    if predecessor_id is None:
        return Standard(asked=asked)
    predecessor = await adapter_rows.find(connection, predecessor_id)
    if predecessor is None or predecessor.status != "active":
        became = "unknown" if predecessor is None else predecessor.status
        return Standard(asked=asked, note=f"not compared with its predecessor {predecessor_id}, which is {became}")
    return Standard(asked=asked, predecessor=predecessor)


async def _predecessor_id(connection: AsyncConnection, adapter: StoredAdapter) -> str | None:
    """As announced, else what the announced alias means now."""
    announced = adapter.announced
    if announced.predecessor_id is not None or announced.alias is None:
        return announced.predecessor_id
    current = await alias_rows.find(connection, announced.alias)
    return current.adapter_id if current is not None and current.adapter_id != adapter.adapter_id else None
