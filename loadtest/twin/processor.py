"""A processor that whoever has work for it shares by turns, as the tasks of one event loop do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest.twin.agenda import Agenda

_TOGETHER_S = 1e-9
"""Rounding: who came at one moment is done at one moment."""


class Processor:
    """Egalitarian sharing: n pieces of work that are under way each get 1/n of the time. A piece takes `work_s` alone,
    every one of them, so they are done in the order in which they came, and those that came together are done
    together."""

    def __init__(self, agenda: Agenda, work_s: float) -> None:
        self._agenda = agenda
        self._work_s = work_s
        self._given_s = 0.0
        """To each that was there all the time."""
        self._reckoned_at_s = 0.0
        self._under_way: deque[tuple[float, Callable[[], None]]] = deque()
        """What will have been given to each when it is done, in this order."""
        self._look_number = 0
        """Of the look that counts: whoever comes makes those before it void."""

    def add(self, on_done: Callable[[], None]) -> None:
        """A piece of work begins; `on_done` may begin another one."""
        self._reckon()
        self._under_way.append((self._given_s + self._work_s, on_done))
        self._look_again()

    def _reckon(self) -> None:
        """What was given up to now. As many shared it all the time since this was reckoned last."""
        now_s = self._agenda.now_s
        if self._under_way:
            self._given_s += (now_s - self._reckoned_at_s) / len(self._under_way)
        self._reckoned_at_s = now_s

    def _look_again(self) -> None:
        """When the first of them is done, if nobody else comes."""
        self._look_number += 1
        if self._under_way:
            lacks_s = max(0.0, self._under_way[0][0] - self._given_s)
            self._agenda.after(lacks_s * len(self._under_way), self._look, self._look_number)

    def _look(self, number: int) -> None:
        if number != self._look_number:
            return
        self._reckon()
        due_s, done = self._under_way[0][0], []
        self._given_s = max(self._given_s, due_s)
        while self._under_way and self._under_way[0][0] <= due_s + _TOGETHER_S:
            done.append(self._under_way.popleft()[1])
        self._look_again()
        for on_done in done:
            on_done()
