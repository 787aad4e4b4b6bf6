"""All pools together: one budget, and the merged pools that customers come to need."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.autoscaler.core.cost import CostPolicy, affordable
from services.autoscaler.core.decide import decide
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.merged import MergedPool
from services.autoscaler.core.policy import ScalePolicy


def decide_all(
    memories: Mapping[str, PoolMemory],
    loads: Mapping[str, PoolLoad],
    now_s: float,
    policy: ScalePolicy,
    cost: CostPolicy,
) -> dict[str, PoolDecision]:
    """A decision for each pool, one after another: what the budget pays for one depends on the others. A pool comes
    before the merged pools of its customers. One that is remembered and no more there costs nothing."""
    desired = {pool_id: memory.desired or 0 for pool_id, memory in memories.items() if pool_id in loads}
    decisions: dict[str, PoolDecision] = {}
    for pool_id in sorted(loads):
        load = msgspec.structs.replace(loads[pool_id], affordable=affordable(pool_id, desired, cost))
        decisions[pool_id] = decide(memories.get(pool_id, PoolMemory()), load, now_s, policy)
        desired[pool_id] = decisions[pool_id].desired
    return decisions


def merged_loads(
    loads: Mapping[str, PoolLoad], merged: Mapping[str, MergedPool], rates: Mapping[str, float]
) -> dict[str, PoolLoad]:
    """The loads with each merged pool's own: all that its customer asks for, and whether it is to be there at all.
    What its replicas do is expected to be what those of the pool do whose customer it is."""
    after = dict(loads)
    for pool_id, pool in merged.items():
        found = loads.get(pool_id)
        if not (found or pool.wanted):
            continue
        after[pool_id] = msgspec.structs.replace(
            found or PoolLoad(pool_id=pool_id),
            demand=pool.demand,
            wanted=pool.wanted,
            expected_rate=rates.get(pool.base_pool_id, 0.0),
        )
    return after
