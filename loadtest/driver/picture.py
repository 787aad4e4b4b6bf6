"""From a run to its page: what each tier, each moment and the slowest adapters had."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.driver.answer import OK
from loadtest.driver.figures import NO_TIER
from loadtest.driver.seen import Collected, Seen
from loadtest.driver.sweep import Swept
from loadtest.measures import quantile
from loadtest.plots.load import Customer, LoadRun, Moment, TierTimes, load_page
from loadtest.plots.sweep import ALL, Rate, sweep_page

_MOMENTS = 40
_POINTS = 200


def draw_run(
    run: Collected, figures: Mapping[str, Any], conditions: dict[str, str], folder: Path, objective_ms: float
) -> Sequence[Path]:
    """Writes the picture and the page; without matplotlib there is none. Raises OSError."""
    try:
        from loadtest.plots.writing import write_page  # only here: figures are to be had without it
    except ImportError:
        return ()
    intro = (
        f"{figures['requests']:,} requests, {figures['failed']:,} of them failed; {figures['request_throughput']:g} "
        f"requests/s and {figures['output_throughput']:,.0f} output tokens/s."
    )
    return write_page(load_page(load_run(run, figures), objective_ms, intro, conditions), folder)


def draw_sweep(swept: Swept, conditions: dict[str, str], folder: Path, objective_ms: float) -> Sequence[Path]:
    """The same for a sweep."""
    try:
        from loadtest.plots.writing import write_page
    except ImportError:
        return ()
    return write_page(sweep_page(rates(swept), objective_ms, swept.verdict, conditions), folder)


def load_run(run: Collected, figures: Mapping[str, Any]) -> LoadRun:
    good = [one for one in run.seen if one.outcome == OK and one.ttft_s is not None]
    by_tier: dict[str, list[Seen]] = defaultdict(list)
    for one in good:
        by_tier[one.tier or NO_TIER].append(one)
    slowest = (row for row in figures["by_adapter"]["slowest"] if row["p95_ttft_ms"] is not None)
    return LoadRun(
        tiers=tuple(_tier(name, figures["by_tier"][name], some) for name, some in sorted(by_tier.items())),
        moments=tuple(_moments(run)),
        slowest=tuple(
            Customer(
                name=row["name"],
                requests=row["requests"],
                ttft_p50_ms=row["median_ttft_ms"],
                ttft_p95_ms=row["p95_ttft_ms"],
            )
            for row in slowest
        ),
    )


def rates(swept: Swept) -> tuple[Rate, ...]:
    return tuple(
        Rate(
            asked_per_s=step.rate_per_s,
            done_per_s=step.figures["request_throughput"],
            tokens_per_s=step.figures["output_throughput"],
            tiers=tuple(
                _tier(name, found, ())
                for name, found in _parts(step.figures).items()
                if found["median_ttft_ms"] is not None
            ),
            misses=step.misses,
        )
        for step in swept.steps
    )


def _parts(figures: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The tiers, and before them all of them together, if there are several."""
    tiers: Mapping[str, Any] = figures["by_tier"]
    return tiers if len(tiers) == 1 else {ALL: figures, **tiers}


def _tier(name: str, figures: Mapping[str, Any], good: Sequence[Seen]) -> TierTimes:
    return TierTimes(
        tier=name,
        requests=figures["completed"],
        ttft_p50_ms=figures["median_ttft_ms"],
        ttft_p95_ms=figures["p95_ttft_ms"],
        tpot_p50_ms=figures["median_tpot_ms"],
        tpot_p95_ms=figures["p95_tpot_ms"],
        cdf=_cdf(sorted(1000 * (one.ttft_s or 0.0) for one in good)),
    )


def _cdf(values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Not more points than can be told apart."""
    every = max(1, len(values) // _POINTS)
    places = sorted({*range(0, len(values), every), len(values) - 1} if values else ())
    return tuple((values[at], (at + 1) / len(values)) for at in places)


def _moments(run: Collected) -> list[Moment]:
    if not run.seen:
        return []
    last_s = max(one.at_s for one in run.seen)
    wide_s = max((last_s - run.warm_up_s) / _MOMENTS, 1.0)
    parts: list[list[Seen]] = [[] for _ in range(math.floor((last_s - run.warm_up_s) / wide_s) + 1)]
    for one in run.seen:
        parts[math.floor((one.at_s - run.warm_up_s) / wide_s)].append(one)
    return [_moment(run.warm_up_s + at * wide_s, some, wide_s) for at, some in enumerate(parts)]


def _moment(at_s: float, some: Sequence[Seen], wide_s: float) -> Moment:
    times_ms = [1000 * one.ttft_s for one in some if one.outcome == OK and one.ttft_s is not None]
    return Moment(
        at_s=at_s,
        due_per_s=len(some) / wide_s,
        failed_per_s=sum(one.outcome != OK for one in some) / wide_s,
        ttft_p50_ms=quantile(times_ms, 0.5) if times_ms else None,
        ttft_p95_ms=quantile(times_ms, 0.95) if times_ms else None,
    )
