"""A request's way from its gateway into a replica's line, as long as it was measured to take."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from loadtest.twin.agenda import Agenda
from loadtest.twin.processor import Processor
from loadtest.twin.timing import Timing

Arrive = Callable[..., None]


class Way:
    """Of one gateway's requests: part of it is work, for which they hold each other up, and what is left passes beside.
    `computing` says how many replicas take steps just now. It is asked once for each request, when its turns are over
    or, where there are none, as it sets out; and not at all where that does not matter to the way."""

    def __init__(self, timing: Timing, agenda: Agenda, draw: random.Random, computing: Callable[[], int]) -> None:
        self._timing = timing
        self._agenda = agenda
        self._draw = draw
        self._computing = computing
        self._way_s = timing.gateway_s + timing.bus_s + timing.worker_s
        shared_s = min(timing.line_s or 0.0, self._way_s) if timing.in_line else 0.0
        self._processor = Processor(agenda, shared_s) if shared_s else None
        self._rest_s = self._way_s - shared_s
        self._free_at_s = 0.0
        self._worker_free_at_s: dict[str, float] = {}
        self._last_at_s: dict[str, float] = {}
        """When the last request to each replica is there."""

    def send(self, replica_id: str, arrive: Arrive, *given: Any) -> None:
        """`arrive` is called when a request that sets out now is there. None overtakes another one to its replica."""
        if self._processor is None:
            mean_s = self._passed_s(self._agenda.now_s, replica_id)
            self._agenda.at(self._there_s(mean_s, replica_id), arrive, *given)
            return

        def on_worked() -> None:
            self._agenda.at(self._there_s(self._agenda.now_s + self._rest_s, replica_id), arrive, *given)

        self._processor.add(on_worked)

    def _there_s(self, at_s: float, replica_id: str) -> float:
        """When it is there after all that on the mean would be at `at_s`, and behind the one before it."""
        timing = self._timing
        if timing.beside_s and self._computing():
            at_s += timing.beside_s
        if timing.jitter_s:
            at_s += max(-self._way_s, self._draw.choice(timing.jitter_s))
        at_s = self._last_at_s[replica_id] = max(self._agenda.now_s, at_s, self._last_at_s.get(replica_id, 0.0))
        return at_s

    def _passed_s(self, now_s: float, replica_id: str) -> float:
        """When it has passed the gateway and its replica's worker, each of which takes one after the other if requests
        are `in_line` and nobody has measured how they share."""
        timing = self._timing
        if not timing.in_line or timing.line_s is not None:
            return now_s + self._way_s
        self._free_at_s = max(now_s, self._free_at_s) + timing.gateway_s
        received_s = max(self._free_at_s + timing.bus_s, self._worker_free_at_s.get(replica_id, 0.0))
        self._worker_free_at_s[replica_id] = received_s + timing.worker_s
        return received_s + timing.worker_s
