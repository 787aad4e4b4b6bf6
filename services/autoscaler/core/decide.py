"""One pool from one moment to the next: pure, so that live, test and twin decide alike."""

from __future__ import annotations

import msgspec

from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.policy import ScalePolicy


def decide(memory: PoolMemory, load: PoolLoad, now_s: float, policy: ScalePolicy) -> PoolDecision:
    """What the pool should have now, and who is to come and to go. To be called about once a second."""
    found = len(load.existing) if load.existing is not None else len(load.replicas)
    wanted = found if memory.desired is None else memory.desired
    desired = min(max(wanted, policy.min_replicas), policy.max_replicas)
    return PoolDecision(
        pool_id=load.pool_id,
        desired=desired,
        reason="what is there is what is wanted",
        memory=msgspec.structs.replace(memory, desired=desired),
        exist=max(found, desired),
        start=max(0, desired - found),
    )
