"""Metrics of one process, in a registry of its own: nothing is global, so a test can hold two services."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

Rows = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""What a gauge shows now: the values of its labels, and its own."""


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

    def timings(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Timings:
        """A histogram for what happens with every token: several times cheaper, for one thread only."""
        timings = Timings(self._prefix + name, help, labels, buckets)
        self._registry.register(timings)
        return timings

    def gauge_of(self, name: str, help: str, labels: Sequence[str], rows: Rows) -> None:
        """A gauge that is asked for what it shows at every scrape: what is not among the rows any more is gone."""
        self._registry.register(_Asked(self._prefix + name, help, labels, rows))

    def foreign_gauge_of(self, name: str, help: str, labels: Sequence[str], rows: Rows) -> None:
        """The same by the name that somebody else's programs look for."""
        self._registry.register(_Asked(name, help, labels, rows))

    def exposition(self) -> bytes:
        """Every metric in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)


class Timing:
    """One series of `Timings`."""

    __slots__ = ("_bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds


class Timings:
    """`timings.of("gpu", "stop").observe(0.2)`: a series begins when its labels are first named."""

    def __init__(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._help, self._labels = name, help, tuple(labels)
        self._bounds = tuple(bounds)
        self._names = (*map(_shown, bounds), "+Inf")
        self._series: dict[tuple[str, ...], Timing] = {} if labels else {(): Timing(self._bounds)}

    def of(self, *labels: str) -> Timing:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Timing(self._bounds)
        return series

    def describe(self) -> list[HistogramMetricFamily]:
        return [self._family()]

    def collect(self) -> list[HistogramMetricFamily]:
        family = self._family()
        for labels, series in self._series.items():
            family.add_metric(labels, list(zip(self._names, accumulate(series.counts), strict=True)), series.sum_s)
        return [family]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._help, labels=self._labels)


class _Asked:
    def __init__(self, name: str, help: str, labels: Sequence[str], rows: Rows) -> None:
        self._name, self._help, self._labels = name, help, tuple(labels)
        self._rows = rows

    def describe(self) -> list[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> list[GaugeMetricFamily]:
        family = self._family()
        for labels, value in self._rows():
            family.add_metric(labels, value)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._help, labels=self._labels)


def _shown(bound: float) -> str:
    return str(float(bound))
