"""Metrics of one process, in a registry of its own: nothing is global, so a test can hold two services."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Names are given without prefix: `requests_total` of the gateway is exposed as
    `lorafleet_gateway_requests_total`. Asking twice for one name raises ValueError."""

    def __init__(self, service: str) -> None:
        self._prefix = f"lorafleet_{service}_"
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(self._prefix + name, help, labels, registry=self._registry)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(self._prefix + name, help, labels, registry=self._registry)

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Histogram:
        return Histogram(self._prefix + name, help, labels, buckets=buckets, registry=self._registry)

    def exposition(self) -> bytes:
        """Every metric in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)
