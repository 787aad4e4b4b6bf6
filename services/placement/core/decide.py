"""From everything that placement knows to everything that it wants to be true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.placement.core.demand import Demand
from services.placement.core.membership import MembershipPolicy, Seen, Standing, judge, membership_of
from services.placement.core.owners import Rankings
from services.placement.core.plan import Held, PoolDemand, ReplicaPlan, is_placed, plan
from services.placement.core.shards import ShardKey, split, still_held
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
    """As the gateways tell it, with times on the scale of `now_s`."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus holds of placement's own writing: by pool, and the shards by their keys."""

    memberships: Mapping[str, Membership] = {}
    owner_counts: Mapping[str, OwnerCount] = {}
    pressures: Mapping[str, PoolPressure] = {}
    shards: Mapping[ShardKey, AssignmentShard] = {}


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus should hold, and the plans it was made from."""

    shards: Mapping[ShardKey, AssignmentShard]
    plans: Mapping[str, ReplicaPlan]


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


def owner_counts(
    facts: Facts, standings: Mapping[str, Standing], stored: Mapping[str, OwnerCount], owners: int, epoch: int
) -> list[OwnerCount]:
    """Of every pool in sight; the exceptions on record stay."""
    pools = set(facts.rank_classes) | {standing.pool_id for standing in standings.values()}
    exceptions = {pool: stored[pool].exceptions if pool in stored else {} for pool in pools}
    return [OwnerCount(pool_id=pool, owners=owners, exceptions=exceptions[pool], epoch=epoch) for pool in sorted(pools)]


class Plannable(msgspec.Struct, frozen=True, kw_only=True):
    """What plans depend on besides the facts: `owner_counts` and `rankings` by pool, `heats` by adapter id."""

    standings: Mapping[str, Standing]
    owner_counts: Mapping[str, OwnerCount]
    rankings: Mapping[str, Rankings]
    heats: Mapping[str, int] = {}


def intend(facts: Facts, given: Plannable, stored: Mapping[ShardKey, AssignmentShard], epoch: int) -> Intent:
    """Plans of every owner, cut into shards; draining replicas keep what they have and get nothing new."""
    by_pool = _by_pool(facts.adapters.values())
    plans: dict[str, ReplicaPlan] = {}
    shards: dict[ShardKey, AssignmentShard] = {}
    for pool, ranking in given.rankings.items():
        members = {s.replica_id: s.member for s in given.standings.values() if s.pool_id == pool and s.owns}
        demand = PoolDemand(
            adapters=by_pool.get(pool, []),
            members=members,
            owner_count=given.owner_counts[pool],
            held=facts.held,
            heats=given.heats,
        )
        for replica_id, replica_plan in plan(demand, ranking).items():
            plans[replica_id] = replica_plan
            shards |= split(replica_id, pool, epoch, replica_plan.adapters)
    live = {key for key, record in facts.adapters.items() if is_placed(record)}
    for standing in given.standings.values():
        if standing.phase == "draining":
            kept = still_held(stored.values(), standing.replica_id, live)
            shards |= split(standing.replica_id, standing.pool_id, epoch, kept)
    return Intent(shards=shards, plans=plans)


def _by_pool(adapters: Iterable[AdapterRecord]) -> dict[str, list[AdapterRecord]]:
    pools: dict[str, list[AdapterRecord]] = {}
    for record in adapters:
        pools.setdefault(record.pool_id, []).append(record)
    return pools
