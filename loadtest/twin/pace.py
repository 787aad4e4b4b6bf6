"""By how much an engine's steps are slower or faster than their mean just now."""

from __future__ import annotations

import random

A_WHILE = 32
"""Steps that are slow together: about as many as the answers have on which their spread is measured."""


class Pace:
    def __init__(self, spread: float, draw: random.Random) -> None:
        self._spread = spread
        self._draw = draw
        self._share = 1.0
        self._until = 0

    def share(self, step: int) -> float:
        """Of its mean time that step number `step` takes."""
        if step >= self._until:
            self._share = max(0.1, 1.0 + self._draw.gauss(0.0, self._spread))
            self._until = step + A_WHILE
        return self._share

    def steps_left(self, step: int) -> int:
        """From step number `step` on that take the same share."""
        return self._until - step

    def forget(self) -> None:
        """The engine stood still: what comes next has nothing to do with what was."""
        self._until = 0
