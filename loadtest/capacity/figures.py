"""One number of a plan, how it came about, and how a person reads it."""

from __future__ import annotations

import msgspec

_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is exact, in `unit` (bytes, s, tokens/s, USD/h, …); `worked` is its formula with the numbers in it."""

    name: str
    label: str
    value: float
    unit: str
    worked: str

    @property
    def text(self) -> str:
        return said(self.value, self.unit)


class Group(msgspec.Struct, frozen=True):
    title: str
    figures: tuple[Figure, ...]


def line(name: str, label: str, value: float, unit: str, worked: str) -> Figure:
    return Figure(name=name, label=label, value=value, unit=unit, worked=worked)


def said(value: float, unit: str) -> str:
    """Three digits and a fitting unit; whole numbers whole."""
    if unit == "bytes":
        size, name = next((step for step in _STEPS if abs(value) >= step[0]), _STEPS[-1])
        return f"{digits(value / size)} {name}"
    if unit == "s":
        return f"{digits(value)} s" if value >= 1 else f"{digits(value * 1000)} ms"
    if unit == "share":
        return f"{digits(value * 100)} %"
    return f"{count(value)} {unit}".rstrip()


def count(value: float) -> str:
    """With a comma every three digits; three digits of what is not whole."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else digits(value)


def digits(value: float) -> str:
    """Three significant digits, without zeros at the end."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):f}".rstrip("0").rstrip(".")
