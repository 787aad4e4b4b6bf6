"""From what clients saw to the figures of a run, in the names and units of `vllm bench serve`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np

from loadtest.driver.answer import OK
from loadtest.driver.asking import tenant_of
from loadtest.driver.seen import Collected, Gaps, Seen
from loadtest.workloads.popularity import Floats

TOP = 10
"""Customers that are named; the others are in the totals."""
SPREAD = ("mean", "median", "p95", "p99")
ENOUGH = 20
"""Requests of a customer, so that its p95 is not its only one."""
_REASONS = 3
_TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2el_s"}
NO_TIER = "unknown"
"""Where the answer does not say."""

Goals = Mapping[str, float]
"""["ttft", "tpot" or "e2el"] what a good request may take, in ms."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the run was meant to be."""

    request_rate: float | None = None
    burstiness: float | None = None
    goals: Goals = {}


def summary(run: Collected, asked: Asked) -> dict[str, Any]:
    """All figures. Times are of requests that succeeded, delays of all."""
    good = [one for one in run.seen if one.outcome == OK]
    by_tier = _grouped(good, lambda one: one.tier or NO_TIER)
    return {
        **_counts(run, good),
        "request_rate": asked.request_rate,
        "burstiness": asked.burstiness,
        **_rates(run, good, asked.goals),
        **_times(run, good, reduce(Gaps.merged, run.gaps.values(), Gaps())),
        **spread_ms("schedule_delay", run.times_s("delay_s", run.seen)),
        "by_tier": {
            tier: {"completed": len(some), **_times(run, some, run.gaps.get(some[0].tier, Gaps()))}
            for tier, some in sorted(by_tier.items())
        },
        "by_customer": split(run, lambda one: tenant_of(one.alias)),
        "by_adapter": split(run, lambda one: one.alias),
        "contents": dict(Counter(one.content for one in good if one.content)),
    }


def split(run: Collected, group: Callable[[Seen], str]) -> dict[str, Any]:
    """Of all groups the TOP slowest and the TOP busiest, and the largest p95 of any that have ENOUGH requests to have
    one; where none has, of all."""
    rows = [_row(run, name, some) for name, some in _grouped(run.seen, group).items()]
    known = [row for row in rows if row["requests"] >= ENOUGH] or rows
    slow = sorted(known, key=lambda row: row["p95_ttft_ms"] or 0.0, reverse=True)
    return {
        "count": len(rows),
        "worst_p95_ttft_ms": slow[0]["p95_ttft_ms"] if slow else None,
        "slowest": slow[:TOP],
        "busiest": sorted(rows, key=lambda row: row["requests"], reverse=True)[:TOP],
    }


def spread_ms(name: str, values_s: Floats) -> dict[str, float | None]:
    """Mean, median, p95 and p99 in ms; None without values."""
    if not len(values_s):
        return _named(name, (None,) * 4)
    shares = np.quantile(values_s, (0.5, 0.95, 0.99), method="inverted_cdf")
    return _named(name, (float(values_s.mean()), *map(float, shares)))


def meets(one: Seen, goals: Goals) -> bool:
    """A goal for something that a request does not have, such as a time per token of one token, holds."""
    if one.outcome != OK:
        return False
    times_s = ((getattr(one, _TIMES[name]), most_ms) for name, most_ms in goals.items())
    return all(time_s is None or 1000 * time_s <= most_ms for time_s, most_ms in times_s)


def _counts(run: Collected, good: Sequence[Seen]) -> dict[str, Any]:
    failed = [one for one in run.seen if one.outcome != OK]
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in failed:
        if one.reason and one.reason not in reasons[one.outcome] and len(reasons[one.outcome]) < _REASONS:
            reasons[one.outcome].append(one.reason)
    return {
        "requests": len(run.seen),
        "completed": len(good),
        "failed": len(failed),
        "failures": dict(Counter(one.outcome for one in failed).most_common()),
        "failure_reasons": {outcome: said for outcome, said in reasons.items() if said},
        "warm_up_requests": run.warm_up,
        "stopped": run.stopped,
        "max_concurrent_requests": run.most_streams,
    }


def _rates(run: Collected, good: Sequence[Seen], goals: Goals) -> dict[str, Any]:
    """Per second of the time from the end of the warm-up to the end of the last answer."""
    prompt_tokens, tokens = sum(one.prompt_tokens for one in good), sum(one.tokens for one in good)
    per_s = (lambda count: round(count / run.duration_s, 3)) if run.duration_s else (lambda count: 0.0)
    return {
        "duration": round(run.duration_s, 3),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": tokens,
        "request_throughput": per_s(len(good)),
        "request_goodput": per_s(sum(meets(one, goals) for one in good)) if goals else None,
        "goodput_share": round(sum(meets(one, goals) for one in run.seen) / len(run.seen), 4)
        if goals and run.seen
        else None,
        "output_throughput": per_s(tokens),
        "total_token_throughput": per_s(prompt_tokens + tokens),
    }


def _times(run: Collected, some: Sequence[Seen], gaps: Gaps) -> dict[str, float | None]:
    return {
        **spread_ms("ttft", run.times_s("ttft_s", some)),
        **spread_ms("tpot", run.times_s("tpot_s", some)),
        **_itl_ms(gaps),
        **spread_ms("e2el", run.times_s("e2el_s", some)),
    }


def _itl_ms(gaps: Gaps) -> dict[str, float | None]:
    if not gaps.count:
        return spread_ms("itl", np.zeros(0))
    return _named("itl", (gaps.mean_s, *(gaps.quantile_s(share) for share in (0.5, 0.95, 0.99))))


def _named(name: str, values_s: Sequence[float | None]) -> dict[str, float | None]:
    rounded = (None if value_s is None else round(1000 * value_s, 3) for value_s in values_s)
    return {f"{what}_{name}_ms": value for what, value in zip(SPREAD, rounded, strict=True)}


def _row(run: Collected, name: str, some: Sequence[Seen]) -> dict[str, Any]:
    good = [one for one in some if one.outcome == OK]
    times = spread_ms("ttft", run.times_s("ttft_s", good))
    return {
        "name": name,
        "requests": len(some),
        "failed": len(some) - len(good),
        "median_ttft_ms": times["median_ttft_ms"],
        "p95_ttft_ms": times["p95_ttft_ms"],
    }


def _grouped(seen: Sequence[Seen], group: Callable[[Seen], str]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        found[group(one)].append(one)
    return found
