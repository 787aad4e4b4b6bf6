"""The page of `lorafleet plan --simulate`: what each size of the fleet would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from loadtest.plots.page import Exhibit, Mark, Page, Panel, Series, Table


class PlanPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What one fleet of so many replicas did in a simulation. Seconds of time to first token; shares of requests."""

    replicas: int
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    worst_customer_p95_s: float
    """The largest p95 of any customer with enough requests to have one."""
    gpu_hit: float
    gpu_or_ram_hit: float
    loads_per_1000: float
    max_over_mean: float
    """Tokens in flight of the fullest replica over the mean of all."""
    failed_share: float
    usd_per_hour: float
    misses: str = ""
    """Why it does not meet the objective; "" if it does."""


def plan_page(points: Sequence[PlanPoint], objective_s: float, smallest: int | None, intro: str) -> Page:
    """`smallest` is the number of replicas from which on the objective is met, None if no point meets it."""
    ordered = tuple(sorted(points, key=lambda point: point.replicas))
    mark = () if smallest is None else (Mark(at=smallest, label=f"{smallest} meet the objective", upright=True),)
    exhibits = (
        _waits(ordered, (*mark, Mark(at=objective_s, label="objective"))),
        _hits(ordered, mark),
        _cost(ordered, mark),
    )
    return Page(name="plan", title="How many replicas?", intro=intro, exhibits=exhibits)


def _waits(points: tuple[PlanPoint, ...], marks: tuple[Mark, ...]) -> Exhibit:
    columns = ("p50", "p95", "p99", "worst customer's p95")
    values = [(p.ttft_p50_s, p.ttft_p95_s, p.ttft_p99_s, p.worst_customer_p95_s) for p in points]
    rows = [
        (*(f"{value:.3f} s" for value in row), point.misses or "met") for point, row in zip(points, values, strict=True)
    ]
    curves = {name: [row[at] for row in values] for at, name in enumerate(columns)}
    return Exhibit(
        panel=_panel("Time to first token", "seconds", _curves(points, curves), marks, y_log=True),
        remark="Half of all requests, 95 and 99 of 100, and 95 of 100 of the customer that waits longest.",
        table=_table(points, (*columns, "objective"), rows),
    )


def _hits(points: tuple[PlanPoint, ...], marks: tuple[Mark, ...]) -> Exhibit:
    curves = {
        "in a slot": [100 * p.gpu_hit for p in points],
        "in a slot or RAM": [100 * p.gpu_or_ram_hit for p in points],
    }
    rows = [
        (f"{p.gpu_hit:.2%}", f"{p.gpu_or_ram_hit:.2%}", f"{p.loads_per_1000:.1f}", f"{p.max_over_mean:.2f}")
        for p in points
    ]
    lowest = min(90.0, *(min(curve) - 1 for curve in curves.values()))
    return Exhibit(
        panel=_panel("Adapters found", "% of requests", _curves(points, curves), marks, y_range=(lowest, 100.5)),
        remark="Where requests find their adapter, loads per 1,000 requests, and the fullest replica over the mean.",
        table=_table(points, ("GPU", "GPU or RAM", "loads", "max/mean"), rows),
    )


def _cost(points: tuple[PlanPoint, ...], marks: tuple[Mark, ...]) -> Exhibit:
    rows = [(f"{p.usd_per_hour:,.2f}", f"{p.failed_share:.2%}") for p in points]
    return Exhibit(
        panel=_panel("Cost", "USD an hour", _curves(points, {"GPUs": [p.usd_per_hour for p in points]}), marks),
        remark="Of all GPUs together; and how many requests found no replica.",
        table=_table(points, ("USD/h", "failed"), rows),
    )


def _curves(points: tuple[PlanPoint, ...], curves: Mapping[str, Sequence[float]]) -> tuple[Series, ...]:
    x = tuple(float(point.replicas) for point in points)
    return tuple(Series(name=name, x=x, y=tuple(y)) for name, y in curves.items())


def _panel(title: str, y_label: str, series: tuple[Series, ...], marks: tuple[Mark, ...], **more: Any) -> Panel:
    return Panel(title=title, x_label="replicas", y_label=y_label, series=series, marks=marks, **more)


def _table(points: tuple[PlanPoint, ...], columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    numbered = tuple((str(point.replicas), *row) for point, row in zip(points, rows, strict=True))
    return Table(columns=("replicas", *columns), rows=numbered)
