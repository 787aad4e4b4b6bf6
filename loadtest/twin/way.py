"""A request's way from its gateway into a replica's line, as long as it was measured to take."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from loadtest.twin.agenda import Agenda
from loadtest.twin.shared import Shared
from loadtest.twin.timing import Timing

Arrive = Callable[..., None]


class Way:
    """Of one gateway's requests. `computing` says how many replicas take steps just now; it is asked only where that
    matters to the way."""

    def __init__(self, timing: Timing, agenda: Agenda, draw: random.Random, computing: Callable[[], int]) -> None:
        self._timing = timing
        self._agenda = agenda
        self._draw = draw
        self._computing = computing
        self._way_s = timing.gateway_s + timing.bus_s + timing.worker_s
        shared_s = min(timing.line_s or 0.0, self._way_s) if timing.in_line else 0.0
        self._shared = Shared(agenda, shared_s) if shared_s else None
        self._rest_s = self._way_s - shared_s
        self._free_at_s = 0.0
        self._worker_free_at_s: dict[str, float] = {}
        self._due_at_s: dict[str, float] = {}

    def send(self, replica_id: str, arrive: Arrive, *given: Any) -> None:
        """`arrive` is called when a request that sets out now is there. None overtakes another one to its replica."""
        if self._shared is None:
            at_s = self._in_line_s(self._agenda.now_s, replica_id)
            self._agenda.at(self._due_s(at_s, replica_id), arrive, *given)
            return

        def on_shared() -> None:
            self._agenda.at(self._due_s(self._agenda.now_s + self._rest_s, replica_id), arrive, *given)

        self._shared.add(on_shared)

    def _due_s(self, due_s: float, replica_id: str) -> float:
        timing = self._timing
        if timing.beside_s:
            due_s += timing.beside_s * self._computing()
        if timing.jitter_s:
            due_s += max(-self._way_s, self._draw.choice(timing.jitter_s))
        due_s = self._due_at_s[replica_id] = max(self._agenda.now_s, due_s, self._due_at_s.get(replica_id, 0.0))
        return due_s

    def _in_line_s(self, now_s: float, replica_id: str) -> float:
        timing = self._timing
        if not timing.in_line or timing.line_s is not None:
            return now_s + self._way_s
        self._free_at_s = max(now_s, self._free_at_s) + timing.gateway_s
        received_s = max(self._free_at_s + timing.bus_s, self._worker_free_at_s.get(replica_id, 0.0))
        self._worker_free_at_s[replica_id] = received_s + timing.worker_s
        return received_s + timing.worker_s
