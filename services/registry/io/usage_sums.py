"""Sums of usage: by tenant, adapter or alias, by minute, and twice for a tenant's day, so that they can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, func, null, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.usage import (
    DAY_S,
    WINDOW_S,
    DayOfBoth,
    TenantDay,
    Total,
    Window,
    WindowTtft,
    day_of,
    window_of,
)
from services.registry.io.rows import columns_of
from services.registry.io.usage_tables import ADAPTER_STATS, TENANT_USAGE, USAGE

BY = ("tenant", "adapter", "alias")

_Column = ColumnElement[Any]
_Named = tuple[Select[Any], _Column]


class TotalsFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is one of BY; `after` the last name of the page before. Tenants are summed up in whole days, adapters in
    whole minutes."""

    by: str
    since_s: float
    until_s: float
    after: str = ""
    limit: int = 1_000


class WindowsFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which minutes of one adapter; `before_s` is the start of the last one of the page before."""

    adapter_id: str
    since_s: float
    before_s: float
    limit: int = 1_000


async def totals(connection: AsyncConnection, wanted: TotalsFilter) -> list[Total]:
    """By name."""
    return [msgspec.convert(columns_of(row), Total) for row in await connection.execute(totals_query(wanted))]


async def windows(connection: AsyncConnection, wanted: WindowsFilter) -> list[Window]:
    """The newest first."""
    return [msgspec.convert(columns_of(row), Window) for row in await connection.execute(windows_query(wanted))]


async def window_ttfts(
    connection: AsyncConnection, adapter_id: str, since_s: float, until_s: float
) -> list[WindowTtft]:
    """Of the adapter's minutes that begin in [since_s, until_s) and had a first token, in no order."""
    rows = await connection.execute(window_ttfts_query(adapter_id, since_s, until_s))
    return [msgspec.convert(columns_of(row), WindowTtft) for row in rows]


async def both(connection: AsyncConnection, tenant_id: str, day: int) -> DayOfBoth:
    """One statement, so that no record comes in between the two."""
    row = (await connection.execute(both_query(tenant_id, day))).one()
    summed, recorded = (TenantDay(tenant_id=tenant_id, day=day, **_side(row, side)) for side in ("summed", "recorded"))
    return DayOfBoth(day=day, summed=summed, recorded=recorded)


def totals_query(wanted: TotalsFilter) -> Select[Any]:
    """Names are compared after grouping: the moments are what the index has to find."""
    query, name = _TOTALS[wanted.by](wanted)
    return query.group_by(name).having(name > wanted.after).order_by(name).limit(wanted.limit)


def windows_query(wanted: WindowsFilter) -> Select[Any]:
    stats = ADAPTER_STATS.c
    query = select(ADAPTER_STATS).where(stats.adapter_id == wanted.adapter_id)
    query = query.where(stats.window_start >= window_of(wanted.since_s), stats.window_start < wanted.before_s)
    return query.order_by(stats.window_start.desc()).limit(wanted.limit)


def window_ttfts_query(adapter_id: str, since_s: float, until_s: float) -> Select[Any]:
    """The nearest rank of each minute: the database ranks, so that no record leaves it."""
    records, stats = USAGE.c, ADAPTER_STATS.c
    start, time_ms = stats.window_start, records.ttft_ms
    within = (records.adapter_id == stats.adapter_id) & (records.at_s >= start) & (records.at_s < start + WINDOW_S)
    ranked = (
        select(
            start.label("start"), time_ms.label("time_ms"),
            func.row_number().over(partition_by=start, order_by=time_ms).label("place"),
            func.count().over(partition_by=start).label("measured"),
        )
        .select_from(ADAPTER_STATS.join(USAGE, within))
        .where(stats.adapter_id == adapter_id, start >= since_s, start < until_s, time_ms.is_not(None))
        .subquery("ranked")
    ).c  # fmt: skip

    def percentile(share: int) -> _Column:
        """The value at the place ceil(share % of all)."""
        return func.max(case((ranked.place * 100 <= ranked.measured * share + 99, ranked.time_ms)))

    return select(
        ranked.start.label("window_start"), func.max(ranked.measured).label("first_tokens"),
        percentile(50).label("ttft_p50_ms"), percentile(95).label("ttft_p95_ms"),
    ).group_by(ranked.start)  # fmt: skip


def both_query(tenant_id: str, day: int) -> Select[Any]:
    days, records, day_s = TENANT_USAGE.c, USAGE.c, day * DAY_S
    summed = _sums(days, _sum(days.requests)).where(days.tenant_id == tenant_id, days.day == day)
    recorded = _sums(records, func.count()).where(
        records.tenant_id == tenant_id, records.at_s >= day_s, records.at_s < day_s + DAY_S
    )
    sides = summed.subquery("summed"), recorded.subquery("recorded")
    columns = [column.label(f"{side.name}_{column.name}") for side in sides for column in side.columns]
    return select(*columns).select_from(sides[0].join(sides[1], true()))


def _by_tenant(wanted: TotalsFilter) -> _Named:
    days = TENANT_USAGE.c
    query = _total(days.tenant_id, _sum(days.requests), _sum(days.completion_tokens), _sum(days.prompt_tokens))
    until = math.ceil(wanted.until_s / DAY_S)
    return query.where(days.day >= day_of(wanted.since_s), days.day < until), days.tenant_id


def _by_adapter(wanted: TotalsFilter) -> _Named:
    stats = ADAPTER_STATS.c
    query = _total(stats.adapter_id, _sum(stats.requests), _sum(stats.tokens), null())
    query = query.add_columns(_sum(stats.errors).label("errors"), _sum(stats.gpu_hits).label("gpu_hits"))
    return query.where(
        stats.window_start >= window_of(wanted.since_s), stats.window_start < wanted.until_s
    ), stats.adapter_id


def _by_alias(wanted: TotalsFilter) -> _Named:
    records = USAGE.c
    query = _total(records.alias, func.count(), _sum(records.completion_tokens), _sum(records.prompt_tokens))
    return query.where(records.at_s >= wanted.since_s, records.at_s < wanted.until_s), records.alias


_TOTALS: Mapping[str, Callable[[TotalsFilter], _Named]] = {
    "tenant": _by_tenant,
    "adapter": _by_adapter,
    "alias": _by_alias,
}


def _total(name: _Column, requests: _Column, completion_tokens: _Column, prompt_tokens: _Column) -> Select[Any]:
    return select(
        name.label("name"), requests.label("requests"), completion_tokens.label("completion_tokens"),
        prompt_tokens.label("prompt_tokens"),
    )  # fmt: skip


def _sums(columns: Any, requests: _Column) -> Select[Any]:
    return select(
        requests.label("requests"),
        _sum(columns.prompt_tokens).label("prompt_tokens"),
        _sum(columns.completion_tokens).label("completion_tokens"),
    )


def _sum(column: _Column) -> _Column:
    """An integer on every database: of large ones PostgreSQL makes a decimal."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


def _side(row: Any, side: str) -> dict[str, int]:
    return {name: getattr(row, f"{side}_{name}") for name in ("requests", "prompt_tokens", "completion_tokens")}
