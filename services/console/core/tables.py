"""Plain-text tables for people; scripts ask for --json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Left-aligned columns under their upper-case names; "-" for what a row lacks."""
    cells = [[column.upper().replace("_", " ") for column in columns]]
    cells += [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def bytes_text(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    size, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
