"""How many tokens a second this replica could produce with every row taken, from the engine's own steps of lately."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

HALF_LIFE_STEPS = 200
"""Ten seconds of fleet A: long beside the noise of steps, short beside what a change of load does to them."""

_KEPT = math.pow(0.5, 1.0 / HALF_LIFE_STEPS)

_LEAST_WEIGHT = 15.0
"""Before so many steps were seen, nothing is said."""

_LONGEST = 4.0
"""Times the mean: a step that took longer (the process was paused, a kernel was compiled) counts as one of so much.
An engine that has really become slower is believed after some more."""

_RIDGE_ROWS2 = 1.0
"""Rows that hardly vary say nothing about what a row costs: it is then taken to cost nothing more."""


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """Step time ≈ a + b · rows: the sums of a weighted least-squares fit. `StepTime()` knows nothing."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows2: float = 0.0
    rows_seconds: float = 0.0

    def after(self, rows: int, seconds: float) -> StepTime:
        """With one more step of so many rows."""
        if self.weight >= _LEAST_WEIGHT:
            seconds = min(seconds, _LONGEST * self.seconds / self.weight)
        return StepTime(
            weight=_KEPT * self.weight + 1.0,
            rows=_KEPT * self.rows + rows,
            seconds=_KEPT * self.seconds + seconds,
            rows2=_KEPT * self.rows2 + rows * rows,
            rows_seconds=_KEPT * self.rows_seconds + rows * seconds,
        )

    def tokens_per_s(self, max_rows: int) -> float:
        """With every row taken; 0: not known yet."""
        return max_rows / self.step_s(max_rows) if self.weight >= _LEAST_WEIGHT else 0.0

    def step_s(self, rows: int) -> float:
        """Of a step with so many rows. Neither a nor b is below zero, so it lies between what was seen, and what it
        would be if rows were all that takes time."""
        mean_rows, mean_s = self.rows / self.weight, self.seconds / self.weight
        variance = max(0.0, self.rows2 / self.weight - mean_rows**2)
        slope = (self.rows_seconds / self.weight - mean_rows * mean_s) / (variance + _RIDGE_ROWS2)
        slope = min(max(slope, 0.0), mean_s / mean_rows)
        return mean_s + slope * (rows - mean_rows)


@dataclass
class Capacity:
    """Told of every step. It counts only those in which nothing but decoding happened: everybody who got a token had
    one before, and nobody's prompt was being computed."""

    _time: StepTime = field(default_factory=StepTime)
    _going_on: frozenset[str] = field(default_factory=frozenset)
    _at_s: float = 0.0

    def step(self, tokens: Mapping[str, int], ended: frozenset[str], running: int, now_s: float) -> None:
        """What one step produced, by request (an engine may hand out several steps of a request together), which of
        them ended with it, and how many rows are taken after it."""
        going_on = frozenset(tokens) - ended
        decoded_only = tokens.keys() <= self._going_on and running <= len(going_on)
        steps = max(tokens.values(), default=0)
        if decoded_only and steps and now_s > self._at_s:
            self._time = self._time.after(len(tokens), (now_s - self._at_s) / steps)
        self._going_on, self._at_s = going_on, now_s

    def tokens_per_s(self, max_rows: int) -> float:
        """0: not known yet."""
        return self._time.tokens_per_s(max_rows)
