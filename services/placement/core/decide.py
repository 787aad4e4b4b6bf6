"""From everything that placement knows to everything that it wants to be true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.placement.core.demand import Demand
from services.placement.core.membership import MembershipPolicy, Seen, Standing, judge, membership_of
from services.placement.core.plan import Held
from services.placement.core.shards import ShardKey
from shared.messages.desired import (
    AdapterRecord,
    AssignmentShard,
    BaseModelRecord,
    Membership,
    OwnerCount,
    PoolPressure,
)
from shared.messages.identity import AdapterKey
from shared.messages.pools import pool_id
from shared.messages.usage import PoolTraffic


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What placement knows at one moment. `now_s` is that moment on the scale of what was heard
    (Listening.time_s), `real_s` the same without allowance for our own deafness."""

    now_s: float
    real_s: float
    adapters: Mapping[AdapterKey, AdapterRecord]
    rank_classes: Mapping[str, int]
    """By pool, of the base models on record."""
    seen: Mapping[str, Seen]
    drained: frozenset[str]
    held: Mapping[str, Held]
    traffic: Mapping[str, PoolTraffic] = {}
    """By pool, as the registry last told it."""
    activity: Demand = Demand()
    """As the gateways tell it, with times on the scale of `real_s`: gateways speak while all replicas are silent."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus holds of placement's own writing: by pool, and the shards by their keys."""

    memberships: Mapping[str, Membership] = {}
    owner_counts: Mapping[str, OwnerCount] = {}
    pressures: Mapping[str, PoolPressure] = {}
    shards: Mapping[ShardKey, AssignmentShard] = {}


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """What people are told when a replica's standing changes."""

    replica_id: str
    was: str
    phase: str
    reason: str


def rank_classes_of(models: Iterable[BaseModelRecord]) -> dict[str, int]:
    return {pool_id(model.base_model_hash, limit): limit for model in models for limit in model.rank_classes}


def judge_all(facts: Facts, policy: MembershipPolicy) -> dict[str, Standing]:
    return {
        replica_id: judge(
            seen,
            facts.now_s,
            policy,
            drained=replica_id in facts.drained,
            rank_class=facts.rank_classes.get(seen.pool_id),
        )
        for replica_id, seen in facts.seen.items()
    }


def phase_changes(before: Mapping[str, Standing], after: Mapping[str, Standing]) -> list[PhaseChange]:
    changes = []
    for replica_id in sorted(before.keys() | after.keys()):
        was = before[replica_id].phase if replica_id in before else "unknown"
        found = after.get(replica_id)
        phase, reason = (found.phase, found.reason) if found else ("forgotten", "silent for longer than its grace")
        if was != phase:
            changes.append(PhaseChange(replica_id=replica_id, was=was, phase=phase, reason=reason))
    return changes


def memberships(standings: Mapping[str, Standing], stored: Mapping[str, Membership], epoch: int) -> list[Membership]:
    """Of every pool that has members or had some; an empty one tells gateways that nobody is left."""
    pools = sorted({standing.pool_id for standing in standings.values()} | set(stored))
    return [membership_of(pool, standings.values(), epoch, stored.get(pool)) for pool in pools]
