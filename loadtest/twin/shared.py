"""A processor that whoever has work for it shares by turns, as the tasks of one event loop do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest.twin.agenda import Agenda

_TOGETHER_S = 1e-9
"""Rounding: who came at one moment is done at one moment."""


class Shared:
    """Egalitarian processor sharing: n who are at it each get 1/n of the time. Pieces are equally long, so they are
    done in the order in which they came, and those that came together are done together."""

    def __init__(self, agenda: Agenda, work_s: float) -> None:
        self._agenda = agenda
        self._work_s = work_s
        self._given_s = 0.0
        """To each that was there all the time."""
        self._reckoned_at_s = 0.0
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        """What will have been given to each when it is done."""
        self._looks = 0

    def add(self, on_done: Callable[[], None]) -> None:
        self._reckon()
        self._waiting.append((self._given_s + self._work_s, on_done))
        self._look_again()

    def _reckon(self) -> None:
        now_s = self._agenda.now_s
        if self._waiting:
            self._given_s += (now_s - self._reckoned_at_s) / len(self._waiting)
        self._reckoned_at_s = now_s

    def _look_again(self) -> None:
        """When the first of them is done, if nobody else comes."""
        self._looks += 1
        if self._waiting:
            lacks_s = max(0.0, self._waiting[0][0] - self._given_s)
            self._agenda.after(lacks_s * len(self._waiting), self._look, self._looks)

    def _look(self, number: int) -> None:
        if number != self._looks:
            return
        self._reckon()
        due_s, done = self._waiting[0][0], []
        self._given_s = max(self._given_s, due_s)
        while self._waiting and self._waiting[0][0] <= due_s + _TOGETHER_S:
            done.append(self._waiting.popleft()[1])
        self._look_again()
        for on_done in done:
            on_done()
