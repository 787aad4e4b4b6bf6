"""What a replica says of itself: its figures once a second, and what it holds whenever that changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from loadtest.twin.agenda import Agenda
from loadtest.twin.wire import Wire
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.core.tokens import Rate
from shared.contracts.catalog import REPLICA_RESIDENCY
from shared.messages.identity import AdapterKey

COALESCE_S = 0.02
SNAPSHOT_S = 10.0


class ResidencyTeller:
    """Changes within 20 ms of each other travel together."""

    def __init__(self, log: ResidencyLog, wire: Wire, agenda: Agenda, tier_of: Callable[[AdapterKey], str]) -> None:
        self._log = log
        self._wire = wire
        self._agenda = agenda
        self._tier_of = tier_of
        self._dirty: dict[AdapterKey, None] = {}

    def changed(self, key: AdapterKey) -> None:
        if not self._dirty:
            self._agenda.after(COALESCE_S, self._flush)
        self._dirty[key] = None

    def snapshot(self, held: Iterable[AdapterKey]) -> None:
        for message in self._log.snapshot({key: self._tier_of(key) for key in held}):
            self._wire.tell(REPLICA_RESIDENCY, message)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for message in self._log.changes({key: self._tier_of(key) for key in dirty}):
            self._wire.tell(REPLICA_RESIDENCY, message)


class Speed:
    """A rate that fades, told of a count that rises steadily between two looks rather than at each step."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._tokens = 0
        self._at_s = 0.0

    def look(self, tokens: int, now_s: float) -> float:
        """Tokens a second at this moment, of a count that has come to `tokens`."""
        passed = (now_s - self._at_s) * math.log(2) / self._rate.half_life_s
        if tokens > self._tokens and passed > 0:
            self._rate.add((tokens - self._tokens) * (1.0 - math.exp(-passed)) / passed, now_s)
        self._tokens, self._at_s = tokens, now_s
        return self._rate.per_s(now_s)


class Capacity:
    """What a replica's rows produce, for all of them: tokens of each second that a row was taken lately."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._tokens = 0.0
        self._row_s = 0.0
        self._seen = (0, 0.0)

    def look(self, tokens: int, row_s: float) -> float:
        """Once a second, with all that was ever produced and taken; 0 while too little is known."""
        before_tokens, before_row_s = self._seen
        self._seen = tokens, row_s
        self._tokens = _KEPT * self._tokens + tokens - before_tokens
        self._row_s = _KEPT * self._row_s + row_s - before_row_s
        return self._max_rows * self._tokens / self._row_s if self._row_s >= 1.0 else 0.0


_KEPT = 0.967
"""Of what was seen, a second later: half of it after 20 s."""
