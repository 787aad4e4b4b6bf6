"""What operators are told of a pool's replicas."""

from __future__ import annotations

import math

from services.autoscaler.core.cost import CostPolicy
from services.autoscaler.core.load import ReplicaLoad
from services.autoscaler.core.metrics import pool_metrics
from services.autoscaler.core.policy import SilencePolicy
from services.autoscaler.io.meters import Meters
from shared.messages.reports import FleetMetrics, PoolMetrics
from shared.runtime.metrics import Metrics
from tests.simulation.speakers import POOL
from tests.unit.autoscaler.pools import at, pool, replicas, wants


def told(known: dict[str, ReplicaLoad]) -> PoolMetrics:
    load = pool(known)
    return pool_metrics(load, at(0.0, load, wants(2)), 0.0, SilencePolicy(), CostPolicy())


def test_a_replica_that_warms_serves_only_while_there_is_no_other() -> None:
    warms = replicas("n1", "n2", warming=True)
    assert (told({**replicas("r1"), **warms}).ready, told({**replicas("r1"), **warms}).pending) == (1, 2)
    assert (told(warms).ready, told(warms).pending) == (2, 0)


def test_kv_caches_are_counted_of_those_that_say_how_large_theirs_is() -> None:
    full = replicas("r1", kv_used_tokens=48_000, kv_total_tokens=64_000)
    silent = replicas("r2", kv_used_tokens=9)
    found = told({**full, **silent})
    assert (found.kv_used_tokens, found.kv_total_tokens) == (48_000, 64_000)
    assert shown(found) == 0.75
    assert math.isnan(shown(told(silent)))


def shown(found: PoolMetrics) -> float:
    metrics = Metrics("autoscaler")
    Meters(metrics).published(FleetMetrics(at_s=0.0, sequence=1, pools=(found,), gateways=0, streams=0))
    [line] = [line for line in metrics.exposition().decode().splitlines() if "kv_used_share{" in line]
    assert POOL in line
    return float(line.rpartition(" ")[2])
