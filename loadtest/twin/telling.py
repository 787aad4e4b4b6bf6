"""What a replica says of itself: its figures once a second, and what it holds whenever that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadtest.twin.agenda import Agenda
from loadtest.twin.wire import Wire
from services.replica_worker.core.residency import ResidencyLog
from shared.contracts.catalog import REPLICA_RESIDENCY
from shared.messages.identity import AdapterKey

COALESCE_S = 0.02


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
