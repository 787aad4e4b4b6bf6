"""The page of the routing report: the same requests, shared out in different ways."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.plots.page import Exhibit, Mark, Page, Panel, Series, Table

TIERS = ("gpu", "ram", "disk", "remote")


class RoutingRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one strategy made of one replay. `tiers` are shares of requests by where their adapter was found, in the
    order of TIERS; `cdf` are (seconds of time to first token, share of requests that had it by then)."""

    strategy: str
    adapters: int
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tiers: tuple[float, float, float, float]
    loads_per_1000: float
    loads_per_min: float
    """Of one replica."""
    evictions_per_min: float
    max_over_mean: float
    cdf: tuple[tuple[float, float], ...] = ()


def routing_page(runs: Sequence[RoutingRun], objective_s: float, intro: str, conditions: dict[str, str]) -> Page:
    """`runs` of every strategy at every number of adapters; curves and tiers are those of the middle number."""
    runs = [msgspec.structs.replace(run, strategy=run.strategy.replace("_", " ")) for run in runs]
    sizes = sorted({run.adapters for run in runs})
    middle = sizes[len(sizes) // 2]
    shown = [run for run in runs if run.adapters == middle]
    return Page(
        name="routing",
        title="Which replica gets a request",
        intro=intro,
        exhibits=(_cdf(shown, objective_s), _tiers(shown), _waits(runs, sizes, objective_s), _loads(runs, sizes)),
        conditions=tuple(conditions.items()),
    )


def _cdf(runs: Sequence[RoutingRun], objective_s: float) -> Exhibit:
    curves = [
        Series(
            name=run.strategy,
            kind="steps",
            x=tuple(at_s for at_s, _ in run.cdf),
            y=tuple(100 * share for _, share in run.cdf),
        )
        for run in runs
    ]
    panel = Panel(
        title=f"Time to first token, {runs[0].adapters:,} adapters",
        x_label="seconds",
        y_label="% of requests",
        series=tuple(curves),
        marks=(Mark(at=objective_s, label="objective", upright=True),),
        x_log=True,
    )
    rows = tuple(
        (run.strategy, *(f"{value * 1000:,.0f} ms" for value in (run.ttft_p50_s, run.ttft_p95_s, run.ttft_p99_s)))
        for run in runs
    )
    return Exhibit(
        panel=panel,
        remark="How many requests have their first token by then.",
        table=Table(columns=("strategy", "p50", "p95", "p99"), rows=rows),
    )


def _tiers(runs: Sequence[RoutingRun]) -> Exhibit:
    names = ("slot", "RAM", "disk", "object store")
    places = tuple(float(place) for place in range(len(runs)))
    panel = Panel(
        title=f"Where adapters are found, {runs[0].adapters:,} adapters",
        x_label="",
        y_label="% of requests",
        series=tuple(
            Series(name=name, kind="stack", x=places, y=tuple(100 * run.tiers[at] for run in runs))
            for at, name in enumerate(names)
        ),
        places=tuple(run.strategy for run in runs),
    )
    rows = tuple((run.strategy, *(f"{share:.2%}" for share in run.tiers)) for run in runs)
    return Exhibit(
        panel=panel,
        remark="The tier on arrival: a slot costs nothing, and every other one a load before the first token.",
        table=Table(columns=("strategy", *names), rows=rows),
    )


def _waits(runs: Sequence[RoutingRun], sizes: Sequence[int], objective_s: float) -> Exhibit:
    panel = _by_size("95 of 100 first tokens", "seconds", [(run, run.ttft_p95_s) for run in runs], sizes)
    return Exhibit(
        panel=msgspec.structs.replace(panel, marks=(Mark(at=objective_s, label="objective"),)),
        remark="p95 of the time to first token as the number of customers grows.",
        table=_table(runs, ("p95", "max/mean"), [(f"{r.ttft_p95_s:.3f} s", f"{r.max_over_mean:.2f}") for r in runs]),
    )


def _loads(runs: Sequence[RoutingRun], sizes: Sequence[int]) -> Exhibit:
    panel = _by_size("Loads per 1,000 requests", "loads", [(run, run.loads_per_1000) for run in runs], sizes)
    rows = [(f"{r.loads_per_1000:,.1f}", f"{r.loads_per_min:,.1f}", f"{r.evictions_per_min:,.1f}") for r in runs]
    return Exhibit(
        panel=panel,
        remark="Adapters brought into a slot; a minute's loads and evictions are those of one replica.",
        table=_table(runs, ("per 1,000", "loads/min", "evictions/min"), rows),
    )


def _by_size(title: str, y_label: str, values: Sequence[tuple[RoutingRun, float]], sizes: Sequence[int]) -> Panel:
    """Bars of every strategy beside each other at every number of adapters."""
    found = {(run.strategy, run.adapters): value for run, value in values}
    strategies = list(dict.fromkeys(run.strategy for run, _ in values))
    return Panel(
        title=title,
        x_label="adapters",
        y_label=y_label,
        series=tuple(
            Series(
                name=strategy,
                kind="bars",
                x=tuple(float(place) for place in range(len(sizes))),
                y=tuple(found[strategy, size] for size in sizes),
            )
            for strategy in strategies
        ),
        places=tuple(f"{size:,}" for size in sizes),
    )


def _table(runs: Sequence[RoutingRun], columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    named = tuple((f"{run.adapters:,}", run.strategy, *row) for run, row in zip(runs, rows, strict=True))
    return Table(columns=("adapters", "strategy", *columns), rows=named)
