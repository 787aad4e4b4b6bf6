"""When calls come: gaps of mean 1, stretched so that the rate of every moment is the shape's.

A rate may change over time and gaps need not be exponential, so gaps are drawn in calls rather than in seconds: call
number n comes when the number of calls expected since the beginning reaches the sum of the first n gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from loadtest.workloads.popularity import Floats
from loadtest.workloads.shape import Bursts, Day, Poisson, Recorded, Rise, Steady, Surge, TrafficShape

BLOCK = 1 << 15
_GRID = 20_000
"""Points at which the expected number of calls is known; between them the rate counts as even."""


def blocks(shape: TrafficShape, draw: np.random.Generator) -> Iterator[Floats]:
    """All times in order, some thousands at once."""
    grid_s, expected = _expected(shape)
    sofar, number = 0.0, 0
    while sofar < expected[-1]:
        sums = sofar + np.cumsum(_gaps(shape.arrivals, draw, number))
        inside = sums[: np.searchsorted(sums, expected[-1])]
        if len(inside):
            yield np.interp(inside, expected, grid_s)
        sofar, number = float(sums[-1]), number + BLOCK


def rate_per_s(shape: TrafficShape, times_s: Floats) -> Floats:
    """Calls a second expected at each moment, everybody's."""
    return common_rate_per_s(shape, times_s) + sum(extra_per_s(rise, times_s) for rise in shape.rises)


def common_rate_per_s(shape: TrafficShape, times_s: Floats) -> Floats:
    """Without what single customers call on top of their share."""
    rate = shape.rate_per_s * _day(shape.day, times_s)
    for surge in shape.surges:
        rate = rate * _surge(surge, times_s)
    return rate


def extra_per_s(rise: Rise, times_s: Floats) -> Floats:
    return np.where((times_s >= rise.at_s) & (times_s < rise.until_s), rise.more_per_s, 0.0)


def _expected(shape: TrafficShape) -> tuple[Floats, Floats]:
    """Moments, and how many calls are expected until each. Every step of the rate is one of the moments."""
    steps = [edge for surge in shape.surges for edge in (surge.at_s, surge.at_s + surge.for_s)]
    steps += [edge for rise in shape.rises for edge in (rise.at_s, rise.until_s)]
    inside = [step for step in steps if 0 < step < shape.for_s and math.isfinite(step)]
    grid_s = np.unique(np.concatenate([np.linspace(0, shape.for_s, _GRID + 1), inside]))
    middles = (grid_s[1:] + grid_s[:-1]) / 2
    counts = rate_per_s(shape, middles) * np.diff(grid_s)
    return grid_s, np.concatenate([[0.0], np.cumsum(counts)])


def _gaps(arrivals: Poisson | Bursts | Steady | Recorded, draw: np.random.Generator, number: int) -> Floats:
    """The next `BLOCK` gaps from call `number` on, of mean 1."""
    if isinstance(arrivals, Poisson):
        return draw.standard_exponential(BLOCK)
    if isinstance(arrivals, Bursts):
        variance = arrivals.cv**2
        return draw.standard_gamma(1 / variance, BLOCK) * variance
    if isinstance(arrivals, Steady):
        return np.ones(BLOCK)
    recorded = np.asarray(arrivals.gaps)
    return recorded[np.arange(number, number + BLOCK) % len(recorded)]


def _day(day: Day | None, times_s: Floats) -> Floats:
    if day is None:
        return np.ones_like(times_s)
    height = (1 + np.cos(2 * np.pi * (times_s - day.peak_at_s) / day.length_s)) / 2
    return day.trough + (1 - day.trough) * height


def _surge(surge: Surge, times_s: Floats) -> Floats:
    during = (times_s >= surge.at_s) & (times_s < surge.at_s + surge.for_s)
    return np.where(during, surge.factor, 1.0)
