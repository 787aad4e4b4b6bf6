"""What must be true of the fleet whatever happens, derived anew and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.twin.twin import Twin


class Invariants:
    def __init__(self, twin: Twin) -> None:
        self.broken: list[str] = []
        self._twin = twin
        self._left = twin.scenario.check_every

    def after_event(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._twin.scenario.check_every
            self.check()

    def check(self, *, at_the_end: bool = False) -> None:
        pass
