"""Plain-text tables for people; scripts ask for --json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Left-aligned columns under their upper-case names; "-" for what a row lacks."""
    cells = [[_heading(column) for column in columns]]
    cells += [[_cell(column, row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _heading(column: str) -> str:
    return column.removesuffix("_s" if column.endswith("_at_s") else "").upper().replace("_", " ")


def _cell(column: str, value: object) -> str:
    """Moments (`…_at_s`, seconds since 1970) as UTC dates; everything else as it is."""
    if column.endswith("_at_s") and isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return _text(value)


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """Two decimals, and only those that say something; what is too small for them keeps its first digits."""
    if 0 < abs(value) < 0.01:
        return f"{value:.2g}"
    whole, _, decimals = f"{value:.2f}".partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"
