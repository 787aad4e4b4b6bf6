"""When rows become free, by how far the answers in them are: answers that began together end together, and meanwhile
no row is free, however many are on average."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

_SEEN = 64
"""Answers of lately."""
_ONE_IN_TWENTY = 1.645
"""Standard deviations."""
_LEAST_ANSWERS = 6
_FURTHEST_STEPS = 1 << 17
_MOST_ASKED = 64
"""Of more rows every second, third ... speaks for its neighbours: the forecast is made anew for every request."""


class Row(msgspec.Struct, frozen=True):
    """An answer in a row: so many tokens were produced in it, and at most `left` more will be."""

    produced: int
    left: int


class RowsFree(msgspec.Struct, frozen=True, kw_only=True):
    """As many rows as were asked for are free after `mean` steps, as things go, and in all but one of twenty such cases
    after `late`."""

    mean: int
    late: int


@dataclass
class RowEnds:
    """Told how long each answer was as it left its row."""

    _recent: deque[int] = field(default_factory=deque)
    _sorted: list[int] = field(default_factory=list)

    def ended(self, tokens: int) -> None:
        self._recent.append(tokens)
        insort(self._sorted, tokens)
        if len(self._recent) > _SEEN:
            del self._sorted[bisect_right(self._sorted, self._recent.popleft()) - 1]

    @property
    def known(self) -> bool:
        return len(self._recent) >= _LEAST_ANSWERS

    def free(self, count: int, rows: Sequence[Row]) -> RowsFree:
        """When `count` of the rows, at least one and at most all, will have been free. Each ends within n steps or does
        not, independently, so that those that do are nearly normally distributed with the sums of their means and
        variances."""
        rate, asked = self._ends_per_token(rows), rows[:: math.ceil(len(rows) / _MOST_ASKED)]
        each = len(rows) / len(asked)
        mean = _least(lambda steps: each * self._ended(asked, steps, rate)[0] >= count)
        late = _least(lambda steps: _surely(each, *self._ended(asked, steps, rate)) >= count, fewest=mean)
        return RowsFree(mean=mean, late=late)

    def _ended(self, rows: Sequence[Row], steps: int, rate: float) -> tuple[float, float]:
        """How many of the rows end within so many steps: mean and variance."""
        chances = [self._chance(row, steps, rate) for row in rows]
        return sum(chances), sum(chance * (1.0 - chance) for chance in chances)

    def _chance(self, row: Row, steps: int, rate: float) -> float:
        """That an answer ends within so many steps, of those of lately that were as long as it is already, and of one
        more that is nobody's and ends at any token alike."""
        if steps >= row.left:
            return 1.0
        as_long = bisect_right(self._sorted, row.produced)
        ended = bisect_right(self._sorted, row.produced + steps) - as_long
        return (ended + 1.0 - math.exp(-rate * steps)) / (len(self._sorted) - as_long + 1.0)

    def _ends_per_token(self, rows: Sequence[Row]) -> float:
        """Laplace's rule of succession, with the tokens of answers that have not ended."""
        tokens = sum(self._recent) + sum(row.produced for row in rows)
        return (len(self._recent) + 1.0) / (tokens + 1.0)


def _surely(each: float, mean: float, variance: float) -> float:
    """Of rows that each speak for so many, with half of an end for what is counted in whole ones."""
    return each * mean - _ONE_IN_TWENTY * math.sqrt(each * variance) + (0.5 if variance else 0.0)


def _least(holds: Callable[[int], bool], fewest: int = 1) -> int:
    """The fewest steps with which it holds, and no fewer than `fewest`; it holds with any more."""
    least, most = fewest - 1, fewest
    while most < _FURTHEST_STEPS and not holds(most):
        least, most = most, 2 * most
    while least + 1 < most:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle, most)
    return most
