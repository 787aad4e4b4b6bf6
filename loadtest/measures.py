"""From what each request saw to the figures of a run, in the names that `vllm bench serve` uses."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as its client saw it. Times are seconds since the run began; `lag_s` is how late it was sent."""

    alias: str
    outcome: str
    """"ok", or the status or sentence of its failure."""
    tier: str
    lag_s: float
    ttft_s: float | None
    tpot_s: float | None
    e2el_s: float
    tokens: int
    text: str


def summary(seen: Sequence[Seen], wall_s: float, markers: Mapping[str, str]) -> dict[str, Any]:
    """All figures of a run. Latencies in ms; `markers` (alias to the text it must contain) checks contents."""
    good = [one for one in seen if one.outcome == "ok"]
    by_tier: dict[str, list[Seen]] = defaultdict(list)
    for one in good:
        by_tier[one.tier].append(one)
    return {
        "requests": len(seen),
        "completed": len(good),
        "failures": dict(Counter(one.outcome for one in seen if one.outcome != "ok")),
        "duration_s": round(wall_s, 3),
        "request_throughput": round(len(good) / wall_s, 3),
        "output_throughput": round(sum(one.tokens for one in good) / wall_s, 3),
        "ttft_ms": spread_ms([one.ttft_s for one in good]),
        "tpot_ms": spread_ms([one.tpot_s for one in good]),
        "e2el_ms": spread_ms([one.e2el_s for one in good]),
        "schedule_delay_ms": spread_ms([one.lag_s for one in seen]),
        "ttft_ms_by_tier": {tier: spread_ms([one.ttft_s for one in some]) for tier, some in sorted(by_tier.items())},
        "contents": contents(good, markers),
    }


def spread_ms(values_s: Sequence[float | None]) -> dict[str, float] | None:
    """Mean, median, p95 and p99 in ms, or None without values."""
    values = [value * 1000 for value in values_s if value is not None]
    if not values:
        return None
    return {
        "mean": round(statistics.fmean(values), 2),
        "median": round(quantile(values, 0.5), 2),
        "p95": round(quantile(values, 0.95), 2),
        "p99": round(quantile(values, 0.99), 2),
    }


def contents(good: Sequence[Seen], markers: Mapping[str, str]) -> dict[str, int]:
    """How many answers carried their own marker, somebody else's, or lacked theirs."""
    counts = Counter({"checked": 0, "own": 0, "foreign": 0, "missing": 0})
    for one in good if markers else ():
        own = markers.get(one.alias)
        foreign = any(marker in one.text for alias, marker in markers.items() if alias != one.alias)
        counts["checked"] += 1
        counts["foreign"] += foreign
        counts["own"] += own is not None and own in one.text
        counts["missing"] += own is not None and own not in one.text
    return dict(counts)


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile: the smallest value that `share` (above 0) of all values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
