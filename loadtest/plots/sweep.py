"""The page of `lorafleet load --sweep`: what each rate did."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.plots.load import TierTimes, ms_text
from loadtest.plots.page import Exhibit, Mark, Page, Panel, Series, Table


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a sweep; `tiers` include all of them together, by the name `all`."""

    asked_per_s: float
    done_per_s: float
    tokens_per_s: float
    tiers: tuple[TierTimes, ...]
    misses: str = ""


ALL = "all"


def sweep_page(rates: Sequence[Rate], objective_ms: float, intro: str, conditions: dict[str, str]) -> Page:
    goal = (Mark(at=objective_ms, label="objective"),)
    exhibits = (
        _times_by_rate("Time to first token", rates, "ttft", goal),
        _times_by_rate("Time per output token", rates, "tpot", ()),
        _throughput(rates),
    )
    return Page(
        name="sweep",
        title="How much load the fleet bears",
        intro=intro,
        exhibits=exhibits,
        conditions=tuple(conditions.items()),
    )


def _times_by_rate(title: str, rates: Sequence[Rate], what: str, marks: tuple[Mark, ...]) -> Exhibit:
    """p50 whole and p95 dashed, of each tier."""
    names = list(dict.fromkeys(tier.tier for rate in rates for tier in rate.tiers))
    curves, rows = [], []
    for name in names:
        for share in ("p50", "p95"):
            points = [
                (rate.asked_per_s, ms)
                for rate in rates
                for tier in rate.tiers
                if tier.tier == name and (ms := getattr(tier, f"{what}_{share}_ms")) is not None
            ]
            if points:
                x, y = zip(*points, strict=True)
                curves.append(Series(name=f"{name} {share}", x=x, y=y, dashed=share == "p95"))
    for rate in rates:
        rows += [
            (f"{rate.asked_per_s:g}", tier.tier, f"{tier.requests:,}",
             *(ms_text(getattr(tier, f"{what}_{share}_ms")) for share in ("p50", "p95")))
            for tier in rate.tiers
        ]  # fmt: skip
    return Exhibit(
        panel=Panel(
            title=title,
            x_label="requests/s",
            y_label="ms",
            series=tuple(curves),
            marks=marks,
            y_log=what == "ttft",
        ),
        remark="Half of all requests, and 95 of 100 (dashed), by where their adapter was found.",
        table=Table(columns=("requests/s", "tier", "requests", "p50", "p95"), rows=tuple(rows)),
    )


def _throughput(rates: Sequence[Rate]) -> Exhibit:
    asked = tuple(rate.asked_per_s for rate in rates)
    curves = (
        Series(name="asked", x=asked, y=asked, dashed=True),
        Series(name="completed", x=asked, y=tuple(rate.done_per_s for rate in rates)),
    )
    rows = tuple(
        (f"{rate.asked_per_s:g}", f"{rate.done_per_s:.2f}", f"{rate.tokens_per_s:,.0f}", rate.misses or "holds")
        for rate in rates
    )
    return Exhibit(
        panel=Panel(title="Throughput", x_label="requests/s", y_label="requests/s", series=curves),
        remark="Completed requests and output tokens a second; the last rate is the one that no longer holds.",
        table=Table(columns=("requests/s", "completed/s", "tokens/s", "objective"), rows=rows),
    )
