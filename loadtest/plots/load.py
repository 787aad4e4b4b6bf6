"""The pages of `lorafleet load`: what one load saw, and what each rate of a sweep did."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.plots.page import Exhibit, Mark, Page, Panel, Series, Table


class TierTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests whose adapter was found in `tier`, all in ms; None where there were too few tokens."""

    tier: str
    requests: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    cdf: tuple[tuple[float, float], ...] = ()
    """(ms of time to first token, share of requests that had it by then)."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that were due in one part of a run, which began at `at_s`."""

    at_s: float
    due_per_s: float
    failed_per_s: float
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None


class Customer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    requests: int
    ttft_p50_ms: float
    ttft_p95_ms: float


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    tiers: tuple[TierTimes, ...]
    moments: tuple[Moment, ...]
    slowest: tuple[Customer, ...]


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a sweep; `tiers` include all of them together, by the name `all`."""

    asked_per_s: float
    done_per_s: float
    tokens_per_s: float
    tiers: tuple[TierTimes, ...]
    misses: str = ""


ALL = "all"


def load_page(run: LoadRun, objective_ms: float, intro: str, conditions: dict[str, str]) -> Page:
    exhibits = (_cdf(run.tiers, objective_ms), _over_time(run.moments, objective_ms), _came(run.moments), _worst(run))
    return Page(
        name="load", title="What a load saw", intro=intro, exhibits=exhibits, conditions=tuple(conditions.items())
    )


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


def _cdf(tiers: Sequence[TierTimes], objective_ms: float) -> Exhibit:
    curves = tuple(
        Series(
            name=tier.tier,
            kind="steps",
            x=tuple(ms for ms, _ in tier.cdf),
            y=tuple(100 * share for _, share in tier.cdf),
        )
        for tier in tiers
    )
    rows = tuple(
        (tier.tier, f"{tier.requests:,}", *map(_ms, (tier.ttft_p50_ms, tier.ttft_p95_ms)),
         *map(_ms, (tier.tpot_p50_ms, tier.tpot_p95_ms)))
        for tier in tiers
    )  # fmt: skip
    marks = (Mark(at=objective_ms, label="objective", upright=True),)
    return Exhibit(
        panel=Panel(
            title="Time to first token", x_label="ms", y_label="% of requests", series=curves, marks=marks, x_log=True
        ),
        remark="How many requests have their first token by then, by where their adapter was found.",
        table=Table(columns=("tier", "requests", "ttft p50", "p95", "tpot p50", "p95"), rows=rows),
    )


def _over_time(moments: Sequence[Moment], objective_ms: float) -> Exhibit:
    curves = tuple(
        Series(name=name, x=tuple(at for at, _ in found), y=tuple(ms for _, ms in found))
        for name, field in (("p50", "ttft_p50_ms"), ("p95", "ttft_p95_ms"))
        if (found := [(moment.at_s, ms) for moment in moments if (ms := getattr(moment, field)) is not None])
    )
    return Exhibit(
        panel=Panel(
            title="First tokens as time went on",
            x_label="seconds",
            y_label="ms",
            series=curves,
            marks=(Mark(at=objective_ms, label="objective"),),
            y_log=True,
        ),
        remark="Of the requests that were due in each part of the run.",
    )


def _came(moments: Sequence[Moment]) -> Exhibit:
    at_s = tuple(moment.at_s for moment in moments)
    curves = (
        Series(name="due", kind="steps", x=at_s, y=tuple(moment.due_per_s for moment in moments)),
        Series(name="failed", kind="steps", x=at_s, y=tuple(moment.failed_per_s for moment in moments)),
    )
    return Exhibit(
        panel=Panel(title="Requests", x_label="seconds", y_label="requests/s", series=curves),
        remark="An open loop: they are sent when they are due, whatever became of those before them.",
    )


def _worst(run: LoadRun) -> Exhibit:
    places = tuple(float(place) for place in range(len(run.slowest)))
    curves = (
        Series(name="p50", kind="bars", x=places, y=tuple(one.ttft_p50_ms for one in run.slowest)),
        Series(name="p95", kind="bars", x=places, y=tuple(one.ttft_p95_ms for one in run.slowest)),
    )
    rows = tuple(
        (f"{number}. {one.name}", f"{one.requests:,}", _ms(one.ttft_p50_ms), _ms(one.ttft_p95_ms))
        for number, one in enumerate(run.slowest, 1)
    )
    return Exhibit(
        panel=Panel(
            title="The slowest adapters",
            x_label="",
            y_label="ms to the first token",
            series=curves,
            places=tuple(str(number) for number in range(1, len(run.slowest) + 1)),
        ),
        remark="Those whose p95 is the largest.",
        table=Table(columns=("alias", "requests", "p50", "p95"), rows=rows),
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
             *(_ms(getattr(tier, f"{what}_{share}_ms")) for share in ("p50", "p95")))
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


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
