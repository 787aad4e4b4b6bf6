"""One line that says how far something has come, how fast it goes, and how long it will take."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_CELLS = 24
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """`done` of `total` after `elapsed_s`; the first `before` were done when this run began, and say nothing about
    its speed."""

    done: int
    total: int
    before: int
    elapsed_s: float

    @property
    def rate(self) -> float:
        """A second."""
        return (self.done - self.before) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """None while nothing has moved."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


def upload_line(name: str, pace: Pace) -> str:
    share = pace.done / pace.total if pace.total else 1.0
    full = int(share * _CELLS)
    bar = "#" * full + "." * (_CELLS - full)
    how_much = f"{size(pace.done)} of {size(pace.total)}, {size(pace.rate)}/s"
    return f"{name} [{bar}] {share:4.0%} {how_much}, {_left(pace.left_s)}"


def batch_line(counts: Mapping[str, int], pace: Pace) -> str:
    each = ", ".join(f"{count} {result}" for result, count in counts.items())
    return f"{pace.done} of {pace.total}: {each or 'none yet'}, {pace.rate:.0f}/s, {_left(pace.left_s)}"


def size(count: float) -> str:
    """Bytes as people read them."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _left(left_s: float | None) -> str:
    return "waiting" if left_s is None else f"{duration(left_s)} left"
