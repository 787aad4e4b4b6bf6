"""The autoscaler's Prometheus metrics: the fleet as it sees it."""

from __future__ import annotations

from services.autoscaler.core.fold import PoolLoad
from services.autoscaler.core.scale import PoolWish
from shared.messages.reports import FleetMetrics
from shared.runtime.metrics import Metrics


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self._desired = metrics.gauge("desired_replicas", "Replicas that a pool should have.", ("pool",))
        self._ready = metrics.gauge("ready_replicas", "Replicas of a pool that serve.", ("pool",))
        self._queue_s = metrics.gauge("queue_seconds", "How long a pool's waiting work would take.", ("pool",))
        self._tokens = metrics.gauge("tokens_in_flight", "Tokens a pool has promised.", ("pool",))
        self._rate = metrics.gauge("tokens_per_second", "Tokens a pool produces.", ("pool",))
        self._silent = metrics.gauge("silent_replicas", "Replicas whose reports stopped lately.")
        self._gateways = metrics.gauge("gateways", "Gateways that report.")
        self._wishes = metrics.counter("wishes_total", "Changes of a pool's wish.", ("pool",))

    def saw(self, load: PoolLoad, wish: PoolWish) -> None:
        self._desired.labels(load.pool_id).set(wish.desired)
        self._ready.labels(load.pool_id).set(load.ready)
        self._queue_s.labels(load.pool_id).set(wish.queue_s)
        self._tokens.labels(load.pool_id).set(load.tokens_in_flight)
        self._rate.labels(load.pool_id).set(load.tokens_per_s)

    def published(self, fleet: FleetMetrics) -> None:
        self._silent.set(len(fleet.replicas_silent))
        self._gateways.set(fleet.gateways)

    def wished(self, pool_id: str) -> None:
        self._wishes.labels(pool_id).inc()
