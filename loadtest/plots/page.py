"""What is drawn, without saying how: a page of exhibits, each a panel and the table of its numbers."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["line", "steps", "bars", "stack", "points"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """`x` are numbers, or places 0, 1, … if the panel names its places. `low` and `high` are where the whiskers of each
    value end. A dashed one is what others are compared with."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: Kind = "line"
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    dashed: bool = False


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A value that matters, as a thin line across: of y, or of x if `upright`."""

    at: float
    label: str
    upright: bool = False


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """The y axis begins at 0, unless it is logarithmic or `y_range` says otherwise."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    places: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Exhibit(msgspec.Struct, frozen=True, kw_only=True):
    """`remark` says in a sentence or two what is to be seen."""

    panel: Panel
    remark: str
    table: Table | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Becomes `<name>.png` and `<name>.html`. `conditions` say what it was made with, seed included."""

    name: str
    title: str
    intro: str
    exhibits: tuple[Exhibit, ...]
    conditions: tuple[tuple[str, str], ...] = ()
