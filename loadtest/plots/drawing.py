"""From panels to pictures. The same page is the same bytes with the same matplotlib: no dates, no ids by chance."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from loadtest.plots.page import Mark, Panel, Series

COLOURS = ("#3f7fbf", "#e08a2c", "#3c9d6b", "#c8504f", "#8a6cc0", "#7d8a94", "#b59a2e")
"""Told apart on white and on black, and by most of those who see few colours."""

INK = "#0a0b0c"
"""In an SVG it becomes the colour of the text around it."""

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.alpha": 0.35,
    "grid.color": "#8c959d",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "lorafleet",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

_PANEL_INCHES = (6.4, 4.0)
_ABOVE_POINTS = 16
"""Between a panel and its title, if the label of a mark stands there."""
_DOTS_PER_INCH = 110


_BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 4}
"""Where bars leave no room for the legend."""


def write_png(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """All panels below the title: up to three side by side, else two in a row. Raises OSError; an old file is kept."""
    columns = len(panels) if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    width, height = _PANEL_INCHES
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, height * rows + 0.5), layout="constrained", facecolor="white")
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
        for axes, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, panels, strict=False):
            _draw(axes, panel)
        for axes in figure.axes[len(panels) :]:
            axes.set_visible(False)
        FigureCanvasAgg(figure)
        fresh = path.with_name(f".{path.name}")
        figure.savefig(fresh, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    fresh.replace(path)


def svg(panel: Panel) -> str:
    """One panel, to stand in a page under a title: see-through, its ink the page's own, its letters real text."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_PANEL_INCHES, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        _draw(axes, panel)
        axes.set_title("")
        FigureCanvasSVG(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return _inlined(written.getvalue())


def _inlined(drawn: str) -> str:
    """As a part of a page: as wide as there is room, no ids twice, the page's ink and font."""
    drawn = drawn[drawn.index("<svg") :]
    opening, rest = drawn.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    drawn = f'<svg {box[0]} role="img" xmlns:xlink="http://www.w3.org/1999/xlink">{rest}'
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    return drawn.replace(INK, "currentColor").replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans', sans-serif")


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, pad=_ABOVE_POINTS if any(mark.upright for mark in panel.marks) else None)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    _bars(axes, [series for series in panel.series if series.kind == "bars"])
    _stack(axes, [series for series in panel.series if series.kind == "stack"])
    for series, colour in zip(panel.series, cycle(COLOURS), strict=False):
        _curve(axes, series, colour)
    for mark in panel.marks:  # before the scales, which are to reach them
        _mark(axes, mark)
    _scales(axes, panel)
    if len(panel.series) > 1:
        axes.legend(**(_BELOW if panel.places else {"loc": "best"}))


def _curve(axes: Axes, series: Series, colour: str) -> None:
    style: dict[str, Any] = {"color": colour, "label": series.name, "linestyle": "--" if series.dashed else "-"}
    if series.kind == "line":
        dots = "o" if len(series.x) <= 60 else None
        axes.plot(series.x, series.y, marker=dots, markersize=4, linewidth=1.8, **style)
    elif series.kind == "steps":
        axes.step(series.x, series.y, where="post", linewidth=1.6, **style)
    elif series.kind == "points":
        axes.errorbar(series.x, series.y, yerr=_whiskers(series), fmt="o", capsize=3, color=colour, label=series.name)


def _bars(axes: Axes, all_series: Sequence[Series]) -> None:
    """Side by side at each place."""
    width = 0.8 / max(1, len(all_series))
    for number, (series, colour) in enumerate(zip(all_series, cycle(COLOURS), strict=False)):
        shifted = [x + (number - (len(all_series) - 1) / 2) * width for x in series.x]
        whiskers: dict[str, Any] = {
            "yerr": _whiskers(series),
            "error_kw": {"ecolor": INK, "elinewidth": 1},
            "capsize": 3,
        }
        axes.bar(shifted, series.y, width * 0.92, label=series.name, color=colour, **whiskers)


def _stack(axes: Axes, all_series: Sequence[Series]) -> None:
    """On top of each other at each place; all have the same places."""
    below = [0.0] * (len(all_series[0].x) if all_series else 0)
    for series, colour in zip(all_series, cycle(COLOURS), strict=False):
        axes.bar(series.x, series.y, 0.6, bottom=below, label=series.name, color=colour)
        below = [low + own for low, own in zip(below, series.y, strict=True)]


def _whiskers(series: Series) -> list[list[float]] | None:
    if series.low is None or series.high is None:
        return None
    return [
        [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)],
        [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)],
    ]


def _scales(axes: Axes, panel: Panel) -> None:
    if panel.places:
        axes.set_xticks(range(len(panel.places)), panel.places)
        axes.grid(visible=False, axis="x")
    if panel.x_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    if panel.y_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    elif not panel.y_log:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))


def _mark(axes: Axes, mark: Mark) -> None:
    line: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (4, 3)), "alpha": 0.75}
    if mark.upright:
        axes.axvline(mark.at, **line)
        axes.text(mark.at, 1.01, mark.label, transform=axes.get_xaxis_transform(), ha="center", fontsize=9)
    else:
        axes.axhline(mark.at, **line)
        above: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "bottom"}
        axes.text(0.99, mark.at, mark.label, fontsize=9, **above)


def _plain(value: float, _place: int) -> str:
    return f"{value:,.10g}"
