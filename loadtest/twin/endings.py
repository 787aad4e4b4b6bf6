"""When the answers that are being produced end, counted in steps."""

from __future__ import annotations

import heapq
from collections.abc import Container

from loadtest.twin.sequence import Sequence


class Endings:
    """What was planned for a sequence is void once it has left its row, also if it came back."""

    def __init__(self, running: Container[Sequence]) -> None:
        self._running = running
        self._planned: list[tuple[int, int, int, Sequence]] = []

    def plan(self, sequence: Sequence, step: int) -> None:
        heapq.heappush(self._planned, (step, sequence.arrival, sequence.turn, sequence))

    def after(self, step: int) -> int:
        """How many steps there are until the next end; 1 if none is planned."""
        while self._planned:
            last, _, turn, sequence = self._planned[0]
            if sequence.turn == turn and sequence in self._running:
                return max(1, last - step)
            heapq.heappop(self._planned)
        return 1

    def due(self, step: int) -> Sequence | None:
        """The next one that has ended by now."""
        while self._planned and self._planned[0][0] <= step:
            _, _, turn, sequence = heapq.heappop(self._planned)
            if sequence.turn == turn and sequence in self._running:
                return sequence
        return None
