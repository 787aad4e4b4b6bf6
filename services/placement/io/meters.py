"""Placement's Prometheus metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from services.placement.core.membership import PHASES, Standing
from services.placement.core.plan import ReplicaPlan
from services.placement.core.pool import PoolMemory
from shared.runtime.metrics import Metrics


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self.plan_s = metrics.histogram("plan_seconds", "Time to rank, plan and cut assignments.")
        self._replicas = metrics.gauge("replicas", "Replicas by phase.", ("phase",))
        self._assigned = metrics.gauge("assigned_adapters", "Adapters that replicas should hold, copies counted.")
        self._left_out = metrics.gauge("left_out_adapters", "Owned adapters beyond the disk budget of their owner.")
        self._late = metrics.gauge(
            "late_adapters", "Adapters with a new holder whose turn has not come yet.", ("pool",)
        )
        self._hot = metrics.gauge("hot_adapters", "Adapters with more owners than usual.", ("pool",))
        self._wished = metrics.gauge(
            "wished_replicas", "Replicas that would hold all busy adapters; 0: fits.", ("pool",)
        )
        self._leads = metrics.gauge("leads", "1 while this placement acts, 0 while it stands by.")
        self._writes = metrics.counter("writes_total", "Values written to the bus.", ("channel",))

    def leads(self, epoch: int) -> None:
        """0: it does not."""
        self._leads.set(1.0 if epoch else 0.0)

    def judged(self, standings: Mapping[str, Standing]) -> None:
        tally = Tally(standing.phase for standing in standings.values())
        for phase in PHASES:
            self._replicas.labels(phase).set(tally[phase])

    def planned(self, plans: Mapping[str, ReplicaPlan]) -> None:
        self._assigned.set(sum(len(plan.adapters) for plan in plans.values()))
        self._left_out.set(sum(plan.left_out for plan in plans.values()))

    def pooled(self, pools: Mapping[str, PoolMemory]) -> None:
        for pool_id, pool in pools.items():
            self._late.labels(pool_id).set(len(pool.late))
            self._hot.labels(pool_id).set(len(pool.counts))
            self._wished.labels(pool_id).set(pool.thrash.pressure.replicas if pool.thrash.pressure else 0)

    def wrote(self, channel: str) -> None:
        self._writes.labels(channel).inc()
