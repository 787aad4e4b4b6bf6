"""Reading usage: what each request was, and what it all comes to. Every query here follows an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.traffic import Counted
from services.registry.core.usage import (
    DAY_S,
    END_OF_TIME_S,
    FAULTLESS,
    OF_THE_FLEET,
    OUT_OF_TIME,
    RecentUsage,
    StoredUsage,
    p95_rank,
    window_of,
)
from services.registry.io.rows import columns_of
from services.registry.io.usage_tables import ADAPTER_STATS, USAGE
from shared.messages.usage import BASE

_AT_ONCE = 500
"""Adapters that one query names: databases bound the parameters of a statement."""
_IN_VAIN = and_(USAGE.c.outcome == OUT_OF_TIME, USAGE.c.ttft_ms.is_(None))


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests to list. `before` is the end (`at_s`, `call_id`) of the last one of the page before."""

    adapter_id: str | None = None
    tenant_id: str | None = None
    alias: str | None = None
    since_s: float = 0.0
    until_s: float = END_OF_TIME_S
    before: tuple[float, str] | None = None
    limit: int = 100


async def listed(connection: AsyncConnection, wanted: UsageFilter) -> list[StoredUsage]:
    """The newest first."""
    rows = await connection.execute(listed_query(wanted))
    return [msgspec.convert(columns_of(row), StoredUsage) for row in rows]


async def counted(connection: AsyncConnection, since_s: float) -> list[Counted]:
    """Requests of every adapter in every pool since the start of a window; the base model is no adapter."""
    return [msgspec.convert(columns_of(row), Counted) for row in await connection.execute(counted_query(since_s))]


async def recent(connection: AsyncConnection, adapter_id: str, since_s: float) -> RecentUsage:
    """The requests of one adapter that ended at `since_s` (seconds since 1970) or later. Who waited in vain, as long
    as it liked, can make the percentile larger: a short time of its own says nothing of a version."""
    row = (await connection.execute(recent_query(adapter_id, since_s))).one()
    p95s = []
    if row.measured:
        p95s.append(await connection.scalar(ttft_query(adapter_id, since_s, p95_rank(row.measured))))
    if row.in_vain:
        rank = p95_rank(row.measured + row.in_vain)
        p95s.append(await connection.scalar(waited_query(adapter_id, since_s, rank)))
    return RecentUsage(requests=row.requests, errors=row.errors, ttft_p95_ms=max(p95s, default=None))


async def rates(
    connection: AsyncConnection, adapter_ids: Sequence[str], since_s: float, *, now_s: float
) -> dict[str, float]:
    """Requests per day of each adapter between `since_s` and `now_s` (seconds since 1970); 0.0 without any."""
    days = max(now_s - window_of(since_s), 1.0) / DAY_S
    found = dict.fromkeys(adapter_ids, 0.0)
    for some in _parts(adapter_ids):
        for row in await connection.execute(rates_query(some, since_s)):
            found[row.adapter_id] = row.requests / days
    return found


def listed_query(wanted: UsageFilter) -> Select[Any]:
    query = select(USAGE).where(USAGE.c.at_s >= wanted.since_s, USAGE.c.at_s < wanted.until_s)
    for column, value in (
        (USAGE.c.adapter_id, wanted.adapter_id), (USAGE.c.tenant_id, wanted.tenant_id), (USAGE.c.alias, wanted.alias)
    ):  # fmt: skip
        if value is not None:
            query = query.where(column == value)
    if wanted.before is not None:
        query = query.where(tuple_(USAGE.c.at_s, USAGE.c.call_id) < tuple_(*wanted.before))
    return query.order_by(USAGE.c.at_s.desc(), USAGE.c.call_id.desc()).limit(wanted.limit)


def counted_query(since_s: float) -> Select[Any]:
    stats = ADAPTER_STATS.c
    return (
        select(stats.pool_id, stats.adapter_id, func.sum(stats.requests).label("requests"))
        .where(stats.window_start >= since_s, stats.adapter_id != BASE)
        .group_by(stats.pool_id, stats.adapter_id)
    )


def recent_query(adapter_id: str, since_s: float) -> Select[Any]:
    errors = case((USAGE.c.outcome.not_in(FAULTLESS), 1), else_=0)
    in_vain = case((_IN_VAIN, 1), else_=0)
    return select(
        func.count().label("requests"),
        func.coalesce(func.sum(errors), 0).label("errors"),
        func.count(USAGE.c.ttft_ms).label("measured"),
        func.coalesce(func.sum(in_vain), 0).label("in_vain"),
    ).where(*_since(adapter_id, since_s), USAGE.c.outcome.not_in(OF_THE_FLEET))


def ttft_query(adapter_id: str, since_s: float, rank: int) -> Select[Any]:
    ours = USAGE.c.outcome.not_in(OF_THE_FLEET)
    measured = (*_since(adapter_id, since_s), ours, USAGE.c.ttft_ms.is_not(None))
    return select(USAGE.c.ttft_ms).where(*measured).order_by(USAGE.c.ttft_ms).offset(rank).limit(1)


def waited_query(adapter_id: str, since_s: float, rank: int) -> Select[Any]:
    """As `ttft_query`, with those that waited in vain: what they waited is the least that it would have been."""
    waited_ms = func.coalesce(USAGE.c.ttft_ms, USAGE.c.duration_ms)
    ours = USAGE.c.outcome.not_in(OF_THE_FLEET)
    measured = (*_since(adapter_id, since_s), ours, or_(USAGE.c.ttft_ms.is_not(None), _IN_VAIN))
    return select(waited_ms).where(*measured).order_by(waited_ms).offset(rank).limit(1)


def rates_query(adapter_ids: Sequence[str], since_s: float) -> Select[Any]:
    stats = ADAPTER_STATS.c
    return (
        select(stats.adapter_id, func.sum(stats.requests).label("requests"))
        .where(stats.adapter_id.in_(adapter_ids), stats.window_start >= window_of(since_s))
        .group_by(stats.adapter_id)
    )


def _since(adapter_id: str, since_s: float) -> tuple[ColumnElement[bool], ...]:
    return USAGE.c.adapter_id == adapter_id, USAGE.c.at_s >= since_s


def _parts(adapter_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (adapter_ids[at : at + _AT_ONCE] for at in range(0, len(adapter_ids), _AT_ONCE))
