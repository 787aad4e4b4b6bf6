"""Pools to decide about, said in few words."""

from __future__ import annotations

from typing import Any

import msgspec

from services.autoscaler.core.decide import decide
from services.autoscaler.core.load import Demand, PoolLoad, ReplicaLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.policy import ScalePolicy
from tests.simulation.speakers import POOL

RATE = 640.0
WANTS = RATE * 0.8 / 100.0
"""Requests/s, of 100 tokens each, that need exactly one replica."""


def replica(name: str, **changes: Any) -> ReplicaLoad:
    plain = {"heard_at_s": 0.0, "max_rows": 32, "slots": 8, "capacity_tokens_per_s": RATE}
    return ReplicaLoad(replica_id=name, **{**plain, **changes})


def replicas(*names: str, **changes: Any) -> dict[str, ReplicaLoad]:
    return {name: replica(name, **changes) for name in names}


def asked(needs: float, **changes: Any) -> Demand:
    """Demand that needs so many replicas."""
    figures = {"requests_per_s": needs * WANTS, "requests_per_s_short": needs * WANTS, "tokens_per_request": 100.0}
    return Demand(heard=True, **{**figures, **changes})


def pool(known: dict[str, ReplicaLoad], **changes: Any) -> PoolLoad:
    """A pool whose actuator knows exactly these replicas, unless told otherwise."""
    return PoolLoad(**{"pool_id": POOL, "replicas": known, "existing": frozenset(known), **changes})


def wants(desired: int, **changes: Any) -> PoolMemory:
    return PoolMemory(desired=desired, **changes)


def at(now_s: float, load: PoolLoad, memory: PoolMemory, policy: ScalePolicy | None = None) -> PoolDecision:
    """A decision with everybody freshly heard, but for those who were last heard before 0 s."""
    heard = {
        name: msgspec.structs.replace(one, heard_at_s=now_s) if one.heard_at_s >= 0.0 else one
        for name, one in load.replicas.items()
    }
    return decide(memory, msgspec.structs.replace(load, replicas=heard), now_s, policy or ScalePolicy())
