"""What a replica counts for Prometheus. Per-adapter figures travel in reports: as labels they would not scale."""

from __future__ import annotations

from collections.abc import Mapping

from services.replica_worker.core.slots import SlotTable
from services.replica_worker.reporting.picking import Picking
from shared.messages.reports import ReplicaReport
from shared.runtime.metrics import Metrics

_DISTINCT = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 256)


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self.picking = Picking(metrics)
        self.ended = metrics.counter("requests_ended_total", "Requests by how they ended", ["reason"])
        self.refused = metrics.counter("requests_refused_total", "Refused requests by code", ["code"])
        self.first_token_s = metrics.histogram(
            "first_token_seconds", "From arrival to the first token, by where the adapter was found", ["tier"]
        )
        self.proofs = metrics.counter("load_proofs_total", "Proofs of loads into slots, by how they went", ["outcome"])
        self.proof_wait_s = metrics.histogram(
            "proof_wait_seconds", "How long tokens that were there waited for the proof of their slot"
        )
        self.tokens = metrics.counter("tokens_total", "Tokens produced")
        self.distinct_adapters = metrics.histogram(
            "step_distinct_adapters", "Different adapters that got a token in one engine step", buckets=_DISTINCT
        )
        self.loads_overlapped = metrics.counter("slot_loads_overlapped_total", "Loads that ran beside running requests")
        self.paused = metrics.counter("requests_paused_total", "Running requests that gave their slot to who waited")
        self.resumed_tokens_computed = metrics.counter(
            "resumed_tokens_computed_total", "Tokens of paused requests that were computed once more"
        )
        self._waiting = metrics.gauge("waiting", "Requests that wait, by what they wait for", ["reason"])
        self._oldest_s = metrics.gauge("oldest_waiting_seconds", "How long the first of those who wait has waited")
        self._loads = metrics.counter("slot_loads_total", "Adapters loaded into slots")
        self._evictions = metrics.counter("slot_evictions_total", "Adapters evicted from slots")
        self._shown = (0, 0)
        self._gauges = {
            name: metrics.gauge(name, text)
            for name, text in (
                ("running", "Requests in the batch"),
                ("queue_depth", "Requests that wait"),
                ("tokens_in_flight", "Tokens promised"),
                ("tokens_per_s", "Tokens produced each second"),
                ("capacity_tokens_per_s", "Tokens a second with every row taken, by the steps of lately; 0: unknown"),
                ("slots_busy", "Slots with references or a load in flight"),
                ("evictions_per_min", "Adapters evicted from slots in the last minute"),
                ("loads_per_min", "Adapters loaded into slots in the last minute"),
                ("ram_bytes", "Bytes of adapters in RAM"),
                ("disk_bytes", "Bytes of adapters on disk"),
                ("warming", "1 while it would rather leave requests to others"),
                ("to_warm", "Adapters that are still to come to its slots while it warms"),
                ("kv_used_tokens", "Tokens of the KV cache that requests use"),
                ("kv_total_tokens", "Tokens that the KV cache holds; 0: unknown"),
            )
        }

    def show(self, report: ReplicaReport, table: SlotTable) -> None:
        for name, gauge in self._gauges.items():
            gauge.set(getattr(report, name))
        loads, evictions = self._shown
        self._shown = table.turnover.loads, table.turnover.evictions
        self._loads.inc(table.turnover.loads - loads)
        self._evictions.inc(table.turnover.evictions - evictions)

    def show_waiting(self, waits: Mapping[str, int], oldest_s: float) -> None:
        """`waits`: how many wait for a "row", a "load", a "slot", or room in the KV "cache"."""
        for reason in ("row", "load", "slot", "cache"):
            self._waiting.labels(reason).set(waits.get(reason, 0))
        self._oldest_s.set(oldest_s)
