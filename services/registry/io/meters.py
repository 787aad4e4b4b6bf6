"""What the registry counts."""

from __future__ import annotations

from shared.runtime.metrics import Metrics


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self._registrations = metrics.counter(
            "registrations_total", "Announcements, by what became of them.", ["outcome"]
        )
        self._evaluations = metrics.counter("evaluations_total", "Evaluations that ended, by their end.", ["outcome"])
        self._mismatches = metrics.counter(
            "effect_mismatches_total", "Adapters quarantined on a replica for their effect."
        )
        self._expired = metrics.counter(
            "deadlines_missed_total", "Adapters that failed at a deadline, by the state they were in.", ["state"]
        )
        self._lost = metrics.counter("lost_bytes_total", "Active adapters whose stored bytes were gone or wrong.")
        self._published = metrics.counter("outbox_published_total", "Outbox rows told to the bus.")
        self._backlog = metrics.gauge("outbox_backlog", "Outbox rows that the bus has not been told yet.")
        self._usage = metrics.counter("usage_records_total", "Usage records, new and repeated ones.", ["result"])

    def usage(self, new: int, repeated: int) -> None:
        self._usage.labels("new").inc(new)
        self._usage.labels("repeated").inc(repeated)

    def registered(self, outcome: str) -> None:
        self._registrations.labels(outcome).inc()

    def evaluated(self, outcome: str) -> None:
        self._evaluations.labels(outcome).inc()

    def expired(self, state: str) -> None:
        self._expired.labels(state).inc()

    def lost(self) -> None:
        self._lost.inc()

    def mismatched(self) -> None:
        self._mismatches.inc()

    def published(self, rows: int = 1) -> None:
        self._published.inc(rows)

    def backlog(self, rows: int) -> None:
        self._backlog.set(rows)
