"""What usage comes to: which ends are errors, and what an adapter did lately."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from shared.messages.usage import UsageRecord

FAULTLESS = (
    "stop", "length", "cancelled", "client_left", "slow_reader", "context_length_exceeded", "invalid_request",
    "request_too_large", "not_ready", "shutting_down", "unavailable", "deadline_exceeded", "other_choice_failed",
)  # fmt: skip
"""Outcomes that say nothing against the version: it answered, the client ended it, was in a greater hurry or asked for
what cannot be, the gateway was starting, stopping or out of touch, or the error is counted with another answer to the
same request. Every other outcome is an error."""

OF_THE_FLEET = ("overloaded", "deadline", "draining", "no_replica", "other_choice_failed")
"""Outcomes that the version had no part in: replicas were full, or too full for the client's deadline, leaving or none,
or another answer failed. But for the last they are errors in sums; a guard counts them as no request at all: it judges
the version, and a busy hour would take back a good one."""

OUT_OF_TIME = "deadline_exceeded"
"""The client's own time was over. No error, and yet a version that is slow shows in it: without a first token, the
whole of that time went by before one."""

WINDOW_S = 60.0
DAY_S = 86_400.0
END_OF_TIME_S = 1e11


class RecentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one adapter that ended since some moment, without those OF_THE_FLEET; `ttft_p95_ms` None: none of
    them had a first token."""

    requests: int
    errors: int
    ttft_p95_ms: float | None


def is_error(outcome: str) -> bool:
    return outcome not in FAULTLESS


def p95_rank(measured: int) -> int:
    """Which of so many values, counted from 0 in ascending order, is their 95th percentile."""
    return max(0, math.ceil(measured * 0.95) - 1)


def window_of(at_s: float) -> float:
    """The start of the window of `adapter_stats` that a moment falls into."""
    return math.floor(at_s / WINDOW_S) * WINDOW_S


def day_of(at_s: float) -> int:
    """Days since 1970, UTC."""
    return math.floor(at_s / DAY_S)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What `adapter_stats` gains for one adapter and one minute."""

    adapter_id: str
    window_start: float
    pool_id: str
    requests: int
    errors: int
    tokens: int
    gpu_hits: int


class WindowTtft(msgspec.Struct, frozen=True, kw_only=True):
    """The first tokens of one adapter in one minute, exactly, of the records that are kept."""

    window_start: float
    first_tokens: int
    ttft_p50_ms: float
    ttft_p95_ms: float


class TimedWindow(Window, frozen=True, kw_only=True):
    """A minute with its percentiles; None: no request of it had a first token, or its records are not kept any more."""

    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None


def timed(found: Iterable[Window], times: Iterable[WindowTtft]) -> list[TimedWindow]:
    """Each window with the times of its minute."""
    by_start = {one.window_start: one for one in times}
    rows = []
    for window in found:
        own = by_start.get(window.window_start)
        row = TimedWindow(**msgspec.structs.asdict(window))
        if own is not None:
            row = msgspec.structs.replace(row, ttft_p50_ms=own.ttft_p50_ms, ttft_p95_ms=own.ttft_p95_ms)
        rows.append(row)
    return rows


class TenantDay(msgspec.Struct, frozen=True, kw_only=True):
    """What `tenant_usage` gains, or holds, for one tenant and one day."""

    tenant_id: str
    day: int
    requests: int
    prompt_tokens: int
    completion_tokens: int


class StoredUsage(UsageRecord, frozen=True, kw_only=True):
    """A record as it is kept, with the gateway that it came from."""

    gateway_id: str


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant, adapter or alias (`name`) used. None: these sums do not say."""

    name: str
    requests: int
    completion_tokens: int
    prompt_tokens: int | None = None
    errors: int | None = None
    gpu_hits: int | None = None


class DayOfBoth(msgspec.Struct, frozen=True, kw_only=True):
    """One day of a tenant: what was summed up as it came in, and what its records come to now."""

    day: int
    summed: TenantDay
    recorded: TenantDay

    @property
    def is_used(self) -> bool:
        return self.summed.requests > 0 or self.recorded.requests > 0

    @property
    def agrees(self) -> bool:
        return self.summed == self.recorded


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """`days` are those with any usage, from `from_day` on."""

    tenant_id: str
    from_day: int
    days: list[DayOfBoth]

    @property
    def agrees(self) -> bool:
        return all(day.agrees for day in self.days)


def kept_days(now_s: float, keep_s: float) -> range:
    """The days of which every record is still there; tomorrow is one of them, for gateways whose clocks are fast."""
    first = day_of(max(now_s - keep_s, -DAY_S)) + 1
    return range(first, day_of(now_s) + 2)


def windows(records: Iterable[UsageRecord]) -> list[Window]:
    """Sums by adapter and minute, in the order of their keys: two registries that add the same keys must not wait
    for each other crosswise."""
    groups: dict[tuple[str, float], list[UsageRecord]] = {}
    for record in records:
        groups.setdefault((record.adapter_id, window_of(record.at_s)), []).append(record)
    return [_window(adapter_id, start_s, groups[adapter_id, start_s]) for adapter_id, start_s in sorted(groups)]


def tenant_days(records: Iterable[UsageRecord]) -> list[TenantDay]:
    """Sums by tenant and day, in the order of their keys."""
    groups: dict[tuple[str, int], list[UsageRecord]] = {}
    for record in records:
        groups.setdefault((record.tenant_id, day_of(record.at_s)), []).append(record)
    return [_tenant_day(tenant_id, day, groups[tenant_id, day]) for tenant_id, day in sorted(groups)]


def _window(adapter_id: str, start_s: float, records: Sequence[UsageRecord]) -> Window:
    return Window(
        adapter_id=adapter_id,
        window_start=start_s,
        pool_id=records[-1].pool_id,
        requests=len(records),
        errors=sum(is_error(record.outcome) for record in records),
        tokens=sum(record.completion_tokens for record in records),
        gpu_hits=sum(record.tier == "gpu" for record in records),
    )


def _tenant_day(tenant_id: str, day: int, records: Sequence[UsageRecord]) -> TenantDay:
    return TenantDay(
        tenant_id=tenant_id,
        day=day,
        requests=len(records),
        prompt_tokens=sum(record.prompt_tokens for record in records),
        completion_tokens=sum(record.completion_tokens for record in records),
    )
