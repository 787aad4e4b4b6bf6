"""From what a run left behind to its figures. Only what began after the warm-up counts.

Quantiles are nearest-rank. A customer has a p95 of its own from ENOUGH requests on: with fewer, one late request is
more than 5 % of them. All customers with fewer count as one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from loadtest.twin.outcome import Answered, Outcome, Second

ENOUGH = 20
BUSY = 0.7
"""Of the rows: above it the balance of loads is looked at."""


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    p50_s: float
    p95_s: float
    p99_s: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares are from 0 to 1. `gpu_hit` and `gpu_or_ram_hit` are of the requests that a replica took, by the tier in
    which it found the adapter on arrival."""

    requests: int
    failed: dict[str, int]
    ttft: Quantiles | None
    ttft_by_tier: dict[str, Quantiles]
    customers_p95_max_s: float | None
    """The worst customer's own p95, of those with enough requests; `customers_tail_p95_s` of the others together. For a
    request that got no token its customer waited without end."""
    customers_tail_p95_s: float | None
    customers_late: int
    """How many customers with enough requests have a p95 above the objective."""
    in_objective: float
    gpu_hit: float
    gpu_or_ram_hit: float
    loads_per_min_replica: float
    evictions_per_min_replica: float
    loads_per_1000_requests: float
    max_over_mean: float | None
    """Tokens in flight of the fullest replica over the mean, averaged over the time above 70 % of the rows; None if
    there was none. `max_over_mean_p95`: what it was below for 95 % of that time."""
    max_over_mean_p95: float | None
    busy_share: float
    utilisation: float
    """Rows taken, on average."""
    tokens_per_s: float
    replica_hours: float
    usd_per_million_tokens: float | None
    rules: dict[str, int]
    attempts_mean: float
    simulated_s: float
    speed_x: float


def figures(outcome: Outcome) -> Figures:
    counted = [each for each in outcome.requests if each.arrived_s >= outcome.warm_up_s]
    seconds = [each for each in outcome.seconds if outcome.warm_up_s <= each.at_s <= outcome.for_s]
    spans_s = max(1e-9, outcome.for_s - outcome.warm_up_s)
    tiers = Counter(each.tier for each in counted if each.tier)
    first = [each.ttft_s for each in counted if each.ttft_s is not None]
    customers = _customers(counted)
    tokens = sum(each.tokens for each in counted)
    hours = sum(len(each.replicas) + each.starting for each in seconds) / 3600.0
    balance = sorted(_max_over_mean(each) for each in seconds if _utilisation(each) > BUSY)
    loads, evictions = _turnover(seconds, "loads"), _turnover(seconds, "evictions")
    minutes = sum(len(each.replicas) for each in seconds) / 60.0
    found = max(1, tiers.total())
    return Figures(
        requests=len(counted),
        failed=dict(Counter(each.outcome for each in counted if each.outcome != "ok")),
        ttft=quantiles(first),
        ttft_by_tier={tier: times for tier in sorted(tiers) if (times := quantiles(_ttfts(counted, tier)))},
        customers_p95_max_s=max((times.p95_s for times in customers.values()), default=None),
        customers_tail_p95_s=_tail_p95_s(counted, customers.keys()),
        customers_late=sum(times.p95_s > outcome.objective_s for times in customers.values()),
        in_objective=sum(time_s <= outcome.objective_s for time_s in first) / max(1, len(counted)),
        gpu_hit=tiers["gpu"] / found,
        gpu_or_ram_hit=(tiers["gpu"] + tiers["ram"]) / found,
        loads_per_min_replica=loads / minutes if minutes else 0.0,
        evictions_per_min_replica=evictions / minutes if minutes else 0.0,
        loads_per_1000_requests=1000.0 * loads / max(1, len(counted)),
        max_over_mean=sum(balance) / len(balance) if balance else None,
        max_over_mean_p95=nearest(balance, 0.95) if balance else None,
        busy_share=len(balance) / max(1, len(seconds)),
        utilisation=sum(map(_utilisation, seconds)) / max(1, len(seconds)),
        tokens_per_s=tokens / spans_s,
        replica_hours=hours,
        usd_per_million_tokens=hours * outcome.usd_per_replica_hour / tokens * 1e6 if tokens else None,
        rules=dict(Counter(each.rule for each in counted if each.rule).most_common()),
        attempts_mean=sum(each.attempts for each in counted) / max(1, len(counted)),
        simulated_s=outcome.simulated_s,
        speed_x=outcome.simulated_s / max(1e-9, outcome.wall_s),
    )


def quantiles(values: Sequence[float]) -> Quantiles | None:
    if not values:
        return None
    ranked = sorted(values)
    return Quantiles(
        count=len(ranked), p50_s=nearest(ranked, 0.5), p95_s=nearest(ranked, 0.95), p99_s=nearest(ranked, 0.99)
    )


def nearest(ranked: Sequence[float], share: float) -> float:
    """The smallest of these, in order, that `share` of all do not exceed."""
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def p95_over_time(outcome: Outcome, tenant: int, window_s: float = 5.0) -> list[tuple[float, float, int]]:
    """One customer's p95 TTFT in windows by arrival: when each ends, what it was, and of how many requests."""
    windows: dict[int, list[float]] = defaultdict(list)
    for each in outcome.requests:
        if each.tenant == tenant and each.ttft_s is not None:
            windows[int(each.arrived_s // window_s)].append(each.ttft_s)
    return [((at + 1) * window_s, nearest(sorted(some), 0.95), len(some)) for at, some in sorted(windows.items())]


def _customers(counted: Iterable[Answered]) -> dict[int, Quantiles]:
    by_tenant: dict[int, list[float]] = defaultdict(list)
    for each in counted:
        by_tenant[each.tenant].append(_waited_s(each))
    return {tenant: found for tenant, some in by_tenant.items() if len(some) >= ENOUGH and (found := quantiles(some))}


def _tail_p95_s(counted: Iterable[Answered], others: Iterable[int]) -> float | None:
    own = frozenset(others)
    rest = quantiles([_waited_s(each) for each in counted if each.tenant not in own])
    return rest.p95_s if rest else None


def _waited_s(answered: Answered) -> float:
    return math.inf if answered.ttft_s is None else answered.ttft_s


def _ttfts(counted: Iterable[Answered], tier: str) -> list[float]:
    return [each.ttft_s for each in counted if each.tier == tier and each.ttft_s is not None]


def _utilisation(second: Second) -> float:
    rows = sum(each.max_rows for each in second.replicas if not each.draining)
    return sum(each.running for each in second.replicas) / rows if rows else 0.0


def _max_over_mean(second: Second) -> float:
    loads = [each.tokens_in_flight for each in second.replicas if not each.draining]
    mean = sum(loads) / len(loads)
    return max(loads) / mean if mean else 1.0


def _turnover(seconds: Sequence[Second], what: str) -> int:
    """Over these seconds. A process that began anew counts from zero."""
    total = 0
    before: dict[str, int] = {}
    for second in seconds:
        for each in second.replicas:
            count: int = getattr(each, what)
            known = before.get(each.replica)
            if known is not None:
                total += count - known if count >= known else count
            before[each.replica] = count
    return total
