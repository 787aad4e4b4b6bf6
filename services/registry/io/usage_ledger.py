"""Writing usage: each record once, with the sums that it belongs to, and forgetting what is old."""

from __future__ import annotations

import msgspec
from sqlalchemy import Delete, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.usage import tenant_days, windows
from services.registry.io.upserts import add_up, insert_new
from services.registry.io.usage_tables import ADAPTER_STATS, TENANT_USAGE, USAGE
from shared.messages.usage import UsageBatch

_WINDOW_SUMS = ("requests", "errors", "tokens", "gpu_hits")
_DAY_SUMS = ("requests", "prompt_tokens", "completion_tokens")


async def enter(connection: AsyncConnection, batch: UsageBatch) -> int:
    """In the caller's transaction: the records that are not there yet, and what they add to the sums; how many
    they were. A batch that comes again adds nothing."""
    records = {record.call_id: record for record in batch.records}
    if not records:
        return 0
    rows = [{**msgspec.to_builtins(record), "gateway_id": batch.gateway_id} for record in records.values()]
    new = [records[call_id] for call_id in sorted(await insert_new(connection, USAGE, rows))]
    if new:
        minutes, days = msgspec.to_builtins(windows(new)), msgspec.to_builtins(tenant_days(new))
        await add_up(connection, ADAPTER_STATS, minutes, _WINDOW_SUMS)
        await add_up(connection, TENANT_USAGE, days, _DAY_SUMS)
    return len(new)


async def prune(connection: AsyncConnection, before_s: float, most: int) -> int:
    """Forget the oldest records from before then, `most` of them; how many there were. A tenant's sums stay."""
    return (await connection.execute(prune_query(before_s, most))).rowcount


async def prune_window(connection: AsyncConnection, before_s: float) -> int:
    """Forget the oldest window of `adapter_stats` if it began before then; how many adapters it had."""
    return (await connection.execute(prune_window_query(before_s))).rowcount


def prune_query(before_s: float, most: int) -> Delete:
    old = select(USAGE.c.call_id).where(USAGE.c.at_s < before_s).order_by(USAGE.c.at_s, USAGE.c.call_id).limit(most)
    return delete(USAGE).where(USAGE.c.call_id.in_(old))


def prune_window_query(before_s: float) -> Delete:
    start = ADAPTER_STATS.c.window_start
    oldest = select(func.min(start)).where(start < before_s).scalar_subquery()
    return delete(ADAPTER_STATS).where(start == oldest)
