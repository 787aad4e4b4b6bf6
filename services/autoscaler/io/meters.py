"""The autoscaler's Prometheus metrics: the fleet as it sees it."""

from __future__ import annotations

from services.autoscaler.core.memory import PoolDecision
from shared.messages.reports import FleetMetrics, PoolMetrics
from shared.runtime.metrics import Metrics

_POOL = ("pool",)


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self._leads = metrics.gauge("leads", "1 while this autoscaler acts, 0 while it stands by.")
        self._desired = metrics.gauge("desired_replicas", "Replicas of a pool that should serve.", _POOL)
        self._exist = metrics.gauge(
            "replicas_to_run", "Replicas of a pool that should exist, those included that still drain.", _POOL
        )
        self._ready = metrics.gauge("ready_replicas", "Replicas of a pool that serve.", _POOL)
        self._pending = metrics.gauge("pending_replicas", "Replicas of a pool that are wished for and start.", _POOL)
        self._draining = metrics.gauge("draining_replicas", "Replicas that the autoscaler drains.", _POOL)
        self._queue_s = metrics.gauge("queue_seconds", "How long a pool's waiting work would take.", _POOL)
        self._tokens = metrics.gauge("tokens_in_flight", "Tokens a pool has promised.", _POOL)
        self._kv = metrics.gauge("kv_used_share", "How full a pool's KV caches are, of those that say so.", _POOL)
        self._rate = metrics.gauge("tokens_per_second", "Tokens a pool produces.", _POOL)
        self._capacity = metrics.gauge("capacity_tokens_per_second", "Tokens a pool could produce.", _POOL)
        self._late = metrics.gauge("late_first_token_share", "First tokens after the objective, lately.", _POOL)
        self._usd = metrics.gauge("usd_per_hour", "What a pool's replicas cost.", _POOL)
        self._usd_tokens = metrics.gauge("usd_per_million_tokens", "What a pool's completion tokens cost.", _POOL)
        self._silent = metrics.gauge("silent_replicas", "Replicas whose reports stopped lately.")
        self._gateways = metrics.gauge("gateways", "Gateways that report.")
        self._customers = metrics.gauge(
            "customers",
            "Adapters with first tokens in the last 5 minutes, and those above the objective.",
            ["standing"],
        )
        self._slowest = metrics.gauge(
            "customer_ttft_p95_seconds", "95th percentile over all gateways, of the slowest.", ["adapter"]
        )
        self._wishes = metrics.counter("wishes_total", "Changes of a pool's wish.", _POOL)
        self._failures = metrics.counter("actuator_failures_total", "Orders that could not be carried out.", _POOL)
        self._of_pools = (
            self._desired, self._exist, self._ready, self._pending, self._draining, self._queue_s, self._tokens,
            self._kv, self._rate, self._capacity, self._late, self._usd, self._usd_tokens,
        )  # fmt: skip

    def leads(self, epoch: int) -> None:
        """0: it does not, and shows no figures of pools: whoever scales by them must not find those of yesterday."""
        self._leads.set(1.0 if epoch else 0.0)
        for gauge in (*self._of_pools, self._customers, self._slowest) if not epoch else ():
            gauge.clear()

    def forget(self, pool_id: str) -> None:
        """The pool is over."""
        for metric in (*self._of_pools, self._wishes, self._failures):
            metric.remove(pool_id)

    def decided(self, decision: PoolDecision) -> None:
        pool_id = decision.pool_id
        self._desired.labels(pool_id).set(decision.desired)
        self._exist.labels(pool_id).set(decision.exist)
        self._draining.labels(pool_id).set(len(decision.drain))

    def published(self, fleet: FleetMetrics) -> None:
        self._silent.set(len(fleet.replicas_silent))
        self._gateways.set(fleet.gateways)
        self._customers.labels("active").set(fleet.customers)
        self._customers.labels("late").set(fleet.customers_late)
        self._slowest.clear()
        for customer in fleet.slowest:
            self._slowest.labels(customer.adapter_id).set(customer.p95_s)
        for pool in fleet.pools:
            self._saw(pool)

    def wished(self, pool_id: str) -> None:
        self._wishes.labels(pool_id).inc()

    def failed(self, pool_id: str) -> None:
        self._failures.labels(pool_id).inc()

    def _saw(self, pool: PoolMetrics) -> None:
        self._ready.labels(pool.pool_id).set(pool.ready)
        self._pending.labels(pool.pool_id).set(pool.pending)
        self._queue_s.labels(pool.pool_id).set(pool.queue_s)
        self._tokens.labels(pool.pool_id).set(pool.tokens_in_flight)
        # Without a word about it, no share is shown rather than an empty cache.
        share = pool.kv_used_tokens / pool.kv_total_tokens if pool.kv_total_tokens else float("nan")
        self._kv.labels(pool.pool_id).set(share)
        self._rate.labels(pool.pool_id).set(pool.tokens_per_s)
        self._capacity.labels(pool.pool_id).set(pool.capacity_tokens_per_s)
        self._late.labels(pool.pool_id).set(pool.late_share)
        self._usd.labels(pool.pool_id).set(pool.usd_per_hour)
        # A pool without tokens has no price a token: none is shown rather than the last one.
        self._usd_tokens.labels(pool.pool_id).set(pool.usd_per_million_tokens or float("nan"))
