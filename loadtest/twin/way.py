"""A request's way from its gateway into a replica's line, as long as it was measured to take."""

from __future__ import annotations

import random
from collections.abc import Callable

from loadtest.twin.timing import Timing


class Way:
    """Of one gateway's requests. `computing` says how many replicas take steps just now; it is asked only where that
    matters to the way."""

    def __init__(self, timing: Timing, draw: random.Random, computing: Callable[[], int]) -> None:
        self._timing = timing
        self._draw = draw
        self._computing = computing
        self._way_s = timing.gateway_s + timing.bus_s + timing.worker_s
        self._free_at_s = 0.0
        self._worker_free_at_s: dict[str, float] = {}
        self._due_at_s: dict[str, float] = {}

    def due_s(self, now_s: float, replica_id: str) -> float:
        """When a request that sets out now will be there. None overtakes another one to its replica."""
        timing = self._timing
        due_s = self._in_line_s(now_s, replica_id) if timing.in_line else now_s + self._way_s
        if timing.beside_s:
            due_s += timing.beside_s * self._computing()
        if timing.jitter_s:
            due_s += max(-self._way_s, self._draw.choice(timing.jitter_s))
        due_s = self._due_at_s[replica_id] = max(now_s, due_s, self._due_at_s.get(replica_id, 0.0))
        return due_s

    def _in_line_s(self, now_s: float, replica_id: str) -> float:
        timing, begins_s = self._timing, max(now_s, self._free_at_s)
        if timing.line_s is not None:
            self._free_at_s = begins_s + timing.line_s
            return begins_s + self._way_s
        self._free_at_s = begins_s + timing.gateway_s
        received_s = max(self._free_at_s + timing.bus_s, self._worker_free_at_s.get(replica_id, 0.0))
        self._worker_free_at_s[replica_id] = received_s + timing.worker_s
        return received_s + timing.worker_s
