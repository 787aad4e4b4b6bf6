"""The page of `lorafleet load`: what one load saw."""

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


def load_page(run: LoadRun, objective_ms: float, intro: str, conditions: dict[str, str]) -> Page:
    exhibits = (_cdf(run.tiers, objective_ms), _over_time(run.moments, objective_ms), _came(run.moments), _worst(run))
    return Page(
        name="load", title="What a load saw", intro=intro, exhibits=exhibits, conditions=tuple(conditions.items())
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
        (tier.tier, f"{tier.requests:,}", *map(ms_text, (tier.ttft_p50_ms, tier.ttft_p95_ms)),
         *map(ms_text, (tier.tpot_p50_ms, tier.tpot_p95_ms)))
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
        (f"{number}. {one.name}", f"{one.requests:,}", ms_text(one.ttft_p50_ms), ms_text(one.ttft_p95_ms))
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


def ms_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
