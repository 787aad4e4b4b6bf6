"""Placement's whole decision, as one pure function: from what is known and stored to what should be stored.

The live service and the twin both call `on_tick`, and nothing else decides where adapters are held.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.placement.core import assigning, catalog, decide, demand, heat, pools, pressure, rates, telling, weights
from services.placement.core.catalog import Catalog
from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import DemandPolicy
from services.placement.core.heat import HeatPolicy, Heats, Live
from services.placement.core.membership import MembershipPolicy, Standing
from services.placement.core.needs import NeedPolicy
from services.placement.core.owners import ChurnPolicy
from services.placement.core.plan import ReplicaPlan
from services.placement.core.pool import PoolMemory, PoolPolicy
from services.placement.core.pools import Now
from services.placement.core.pressure import ThrashPolicy
from services.placement.core.reasons import told
from services.placement.core.shards import ShardChanges, ShardKey, differences
from services.placement.core.weights import WeightPolicy, Weights
from shared.messages.desired import AssignmentShard, Membership, OwnerCount, PoolPressure

_NEVER_S = float("-inf")


class TickPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`owners` is how many every adapter has."""

    membership: MembershipPolicy = MembershipPolicy()
    weight: WeightPolicy = WeightPolicy()
    heat: HeatPolicy = HeatPolicy()
    demand: DemandPolicy = DemandPolicy()
    need: NeedPolicy = NeedPolicy()
    churn: ChurnPolicy = ChurnPolicy()
    thrash: ThrashPolicy = ThrashPolicy()
    owners: int = 2
    refresh_s: float = 60.0
    """How often plans follow what replicas really hold, and how busy adapters have become."""

    @property
    def pool(self) -> PoolPolicy:
        return PoolPolicy(owners=self.owners, need=self.need, churn=self.churn, thrash=self.thrash, heat=self.heat)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick leaves for the next; `Memory()` is the beginning. `epoch` is that of the last tick."""

    epoch: int | None = None
    standings: Mapping[str, Standing] = {}
    weights: Weights | None = None
    catalog: Catalog = Catalog()
    heats: Heats | None = None
    pools: Mapping[str, PoolMemory] = {}
    shards: Mapping[ShardKey, AssignmentShard] = {}
    planned_at_s: float = _NEVER_S

    def doubting(self) -> Memory:
        """After a write that failed, or when what is stored was read anew: the next tick makes every plan again."""
        return msgspec.structs.replace(self, planned_at_s=_NEVER_S)

    @property
    def plans(self) -> dict[str, ReplicaPlan]:
        """By replica."""
        return {name: plan for each in self.pools.values() for name, plan in each.plans.items()}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus should hold: memberships, owner counts and pressures are the whole truth, `shards` the difference.
    To be written in this order: gateways rank from memberships at once, and they fence off an older placement."""

    memberships: tuple[Membership, ...]
    owner_counts: tuple[OwnerCount, ...]
    shards: ShardChanges
    pressures: tuple[PoolPressure, ...]
    plans: Mapping[str, ReplicaPlan]
    """By replica."""
    memory: Memory
    reasons: tuple[str, ...] = ()
    """What changed and why, a sentence each."""


def on_tick(memory: Memory, facts: Facts, stored: Stored, policy: TickPolicy, epoch: int) -> Decision:
    """To be called whenever something may have changed, and every second; `stored` must hold what earlier decisions
    have written. Facts that have not changed should be the same objects: that is how it is known."""
    if memory.epoch != epoch:  # somebody else may have written since: begin with what is there
        memory = Memory(standings=memory.standings, catalog=memory.catalog)
    judged = decide.judge_all(facts, policy.membership)
    known = weights.recall(stored.memberships.values()) if memory.weights is None else memory.weights
    weighed = weights.weigh(known, judged, facts.seen, facts.now_s, policy.weight)
    standings = weights.applied(judged, facts.seen, weighed)
    records = catalog.indexed(memory.catalog, facts.adapters)
    heats, is_due = _heats(memory, facts, stored, policy)
    now = Now(facts, standings, records, heats, is_due)
    turned = pools.turned(memory.pools, now, stored, policy.pool, policy.demand)
    kept = assigning.kept_while_draining(standings, records, stored.shards)
    shards = assigning.cut(assigning.Before(memory.pools, memory.shards), turned, kept, epoch)
    after = Memory(
        epoch=epoch,
        standings=standings,
        weights=weighed,
        catalog=records,
        heats=heats,
        pools=turned,
        shards=shards,
        planned_at_s=facts.now_s if is_due else memory.planned_at_s,
    )
    return Decision(
        memberships=tuple(decide.memberships(standings, stored.memberships, epoch)),
        owner_counts=tuple(telling.owner_counts(facts.rank_classes, turned, policy.owners, epoch)),
        shards=differences(stored.shards, shards),
        pressures=tuple(telling.pressures(turned, stored.pressures, facts.now_s, epoch)),
        plans=after.plans,
        memory=after,
        reasons=told(memory.standings, standings, memory.pools, turned),
    )


def after(stored: Stored, decision: Decision) -> Stored:
    """What is stored once the decision has been carried out in full."""
    gone = set(decision.shards.deletes)
    shards = {key: shard for key, shard in stored.shards.items() if key not in gone}
    return Stored(
        memberships={**stored.memberships, **{value.pool_id: value for value in decision.memberships}},
        owner_counts={**stored.owner_counts, **{value.pool_id: value for value in decision.owner_counts}},
        pressures={**stored.pressures, **{value.pool_id: value for value in decision.pressures}},
        shards={**shards, **dict(decision.shards.puts)},
    )


def standings_of(memory: Memory, facts: Facts, policy: TickPolicy) -> dict[str, Standing]:
    """As of these facts, with the weights of the last tick: for answers between two ticks."""
    return weights.applied(decide.judge_all(facts, policy.membership), facts.seen, memory.weights or {})


def _heats(memory: Memory, facts: Facts, stored: Stored, policy: TickPolicy) -> tuple[Heats, bool]:
    """How busy adapters are, and whether every plan is to be made again: with a refresh, when a pool was unknown so
    far, and when a replica begins to thrash, unless it was seen a moment ago who is busy."""
    known = heat.recall(stored.shards.values(), policy.heat) if memory.heats is None else memory.heats
    age_s = facts.now_s - memory.planned_at_s
    is_due = (
        age_s >= policy.refresh_s
        or bool(facts.traffic.keys() - known.keys())
        or (age_s >= policy.thrash.for_s and _begins_to_thrash(memory, facts.now_s, policy.thrash))
    )
    if not is_due:
        return known, False
    heard = demand.heard_share(facts.activity, facts.real_s, policy.demand)
    live = {
        pool_id: Live(rates_per_s=rates.steady(facts.activity, pool_id, facts.real_s, policy.demand), heard=heard)
        for pool_id in facts.activity.traces
    }
    return heat.fold(known, facts.traffic.values(), policy.heat, live), True


def _begins_to_thrash(memory: Memory, now_s: float, policy: ThrashPolicy) -> bool:
    return any(pressure.begins(each.thrash, now_s, policy) for each in memory.pools.values())
