"""The page of the twin's report: what it said of workloads, and what the real fleet then did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from textwrap import fill

import msgspec

from loadtest.plots.page import Exhibit, Page, Panel, Series, Table

_LABEL = 11
"""Characters of a workload's name in a line below its bars."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one workload: every run of the real fleet, and the twin's."""

    real: tuple[float, ...]
    twin: float

    @property
    def error(self) -> float:
        """The twin against the mean of the real runs, as a share of it."""
        return self.twin / fmean(self.real) - 1

    @property
    def spread(self) -> float:
        """Of the real runs: half of what lies between the smallest and the largest, as a share of their mean."""
        return (max(self.real) - min(self.real)) / 2 / fmean(self.real)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that the twin was not calibrated on."""

    workload: str
    tokens_per_s: Measured
    ttft_p50_s: Measured
    ttft_p95_s: Measured


def validation_page(compared: Sequence[Compared], intro: str, conditions: dict[str, str]) -> Page:
    figures: tuple[tuple[str, str, Callable[[Compared], Measured]], ...] = (
        ("Throughput", "tokens/s", lambda one: one.tokens_per_s),
        ("Median time to first token", "ms", lambda one: _in_ms(one.ttft_p50_s)),
        ("p95 of the time to first token", "ms", lambda one: _in_ms(one.ttft_p95_s)),
    )
    return Page(
        name="twin",
        title="The twin beside the real fleet",
        intro=intro,
        exhibits=tuple(_exhibit(title, unit, compared, pick) for title, unit, pick in figures),
        conditions=tuple(conditions.items()),
    )


def _in_ms(measured: Measured) -> Measured:
    return Measured(real=tuple(1000 * value for value in measured.real), twin=1000 * measured.twin)


def _exhibit(title: str, unit: str, compared: Sequence[Compared], pick: Callable[[Compared], Measured]) -> Exhibit:
    values = [pick(one) for one in compared]
    places = tuple(float(place) for place in range(len(compared)))
    panel = Panel(
        title=title,
        x_label="",
        y_label=unit,
        series=(
            Series(
                name="real fleet, all runs",
                kind="bars",
                x=places,
                y=tuple(fmean(value.real) for value in values),
                low=tuple(min(value.real) for value in values),
                high=tuple(max(value.real) for value in values),
            ),
            Series(name="twin", kind="bars", x=places, y=tuple(value.twin for value in values)),
        ),
        places=tuple(fill(one.workload, _LABEL) for one in compared),
    )
    rows = tuple(
        (
            one.workload,
            f"{fmean(value.real):,.4g}",
            f"± {value.spread:.1%}",
            f"{value.twin:,.4g}",
            f"{value.error:+.1%}",
        )
        for one, value in zip(compared, values, strict=True)
    )
    return Exhibit(
        panel=panel,
        remark="The whisker reaches from the smallest to the largest of the real fleet's runs.",
        table=Table(columns=("workload", "real", "spread", "twin", "error"), rows=rows),
    )
