"""What happens when: a heap of events, and the time of the one that is happening."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Do = Callable[..., None]


class ClockTurnedBack(Exception):
    """Something was to happen before what is happening now."""


class Agenda:
    """Events of the same moment happen in the order in which they were entered."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Do, tuple[Any, ...]]] = []
        self._entered = 0

    def at(self, at_s: float, do: Do, *given: Any) -> None:
        """Raises ClockTurnedBack."""
        if at_s < self.now_s:
            raise ClockTurnedBack(f"{do} is due at {at_s:.6f} s, and it is {self.now_s:.6f} s")
        self._entered += 1
        heapq.heappush(self._heap, (at_s, self._entered, do, given))

    def after(self, wait_s: float, do: Do, *given: Any) -> None:
        self.at(self.now_s + wait_s, do, *given)

    def soon(self, do: Do, *given: Any) -> None:
        """At this moment, after all that is entered for it already."""
        self.at(self.now_s, do, *given)

    def every(self, interval_s: float, do: Do, first_s: float = 0.0) -> None:
        """For ever. `do` is called without arguments."""

        def again() -> None:
            do()
            self.after(interval_s, again)

        self.at(self.now_s + first_s, again)

    def run(self, until_s: float, after_each: Callable[[], None] | None = None) -> None:
        """All that is due before `until_s`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] < until_s:
            self.now_s, _, do, given = pop(heap)
            do(*given)
            self.events += 1
            if after_each is not None:
                after_each()
        self.now_s = max(self.now_s, until_s)
