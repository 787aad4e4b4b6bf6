"""The page of the autoscaler's day: how many replicas there were, and how many it would have taken."""

from __future__ import annotations

import msgspec

from loadtest.plots.page import Exhibit, Page, Panel, Series, Table

HOUR_S = 3600.0


class ScaledDay(msgspec.Struct, frozen=True, kw_only=True):
    """One column a moment. `oracle` knew the whole day in advance; `late_share` is that of the requests since the
    moment before whose first token came after the objective."""

    at_s: tuple[float, ...]
    requests_per_s: tuple[float, ...]
    replicas: tuple[float, ...]
    oracle: tuple[float, ...]
    late_share: tuple[float, ...]


def scaling_page(day: ScaledDay, figures: dict[str, str], intro: str, conditions: dict[str, str]) -> Page:
    """`figures`: what the day comes to, by name."""
    hours = tuple(at_s / HOUR_S for at_s in day.at_s)
    table = Table(columns=("figure", ""), rows=tuple(figures.items()))
    fleet = _panel("Replicas", "replicas", (
        Series(name="autoscaler", kind="steps", x=hours, y=day.replicas),
        Series(name="oracle", kind="steps", x=hours, y=day.oracle, dashed=True),
    ))  # fmt: skip
    load = _panel("Load", "requests/s", (Series(name="requests", kind="steps", x=hours, y=day.requests_per_s),))
    late = _panel("Late first tokens", "% of requests", (
        Series(name="late", kind="steps", x=hours, y=tuple(100 * share for share in day.late_share)),
    ))  # fmt: skip
    return Page(
        name="autoscaling",
        title="A day of the autoscaler",
        intro=intro,
        exhibits=(
            Exhibit(panel=load, remark="What came: a day's shape with bursts on top."),
            Exhibit(
                panel=fleet, remark="What there was, and what somebody would have run who knew the day.", table=table
            ),
            Exhibit(panel=late, remark="Requests whose first token came after the objective."),
        ),
        conditions=tuple(conditions.items()),
    )


def _panel(title: str, y_label: str, series: tuple[Series, ...]) -> Panel:
    return Panel(title=title, x_label="hour", y_label=y_label, series=series)
