"""Placement's whole decision, as one pure function: from what is known and stored to what should be stored.

The live service and the twin both call `on_tick`, and nothing else decides where adapters are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.placement.core import assigning, catalog, decide, demand, heat, needs, pool, pressure, turn, weights
from services.placement.core.catalog import Catalog
from services.placement.core.decide import Facts, Stored
from services.placement.core.demand import DemandPolicy
from services.placement.core.heat import HeatPolicy, Heats, Live
from services.placement.core.membership import MembershipPolicy, Seen, Standing
from services.placement.core.needs import NeedPolicy
from services.placement.core.owners import ChurnPolicy
from services.placement.core.plan import ReplicaPlan
from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy, Recalled
from services.placement.core.pressure import Thrash, ThrashPolicy
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
    pools = _pools(memory, _Turn(facts, standings, records, heats, is_due), stored, policy)
    kept = assigning.kept_while_draining(standings, records, stored.shards)
    shards = assigning.cut(assigning.Before(memory.pools, memory.shards), pools, kept, epoch)
    after = Memory(
        epoch=epoch,
        standings=standings,
        weights=weighed,
        catalog=records,
        heats=heats,
        pools=pools,
        shards=shards,
        planned_at_s=facts.now_s if is_due else memory.planned_at_s,
    )
    return Decision(
        memberships=tuple(decide.memberships(standings, stored.memberships, epoch)),
        owner_counts=tuple(_owner_counts(facts, standings, pools, policy.owners, epoch)),
        shards=differences(stored.shards, shards),
        pressures=tuple(_pressures(pools, epoch)),
        plans=after.plans,
        memory=after,
        reasons=told(memory.standings, standings, memory.pools, pools),
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


class _Turn(msgspec.Struct, frozen=True):
    facts: Facts
    standings: Mapping[str, Standing]
    records: Catalog
    heats: Heats
    is_due: bool


def _heats(memory: Memory, facts: Facts, stored: Stored, policy: TickPolicy) -> tuple[Heats, bool]:
    """How busy adapters are, and whether every plan is to be made again: with a refresh, when a pool was unknown so
    far, and when a replica begins to thrash."""
    known = heat.recall(stored.shards.values(), policy.heat) if memory.heats is None else memory.heats
    is_due = (
        facts.now_s - memory.planned_at_s >= policy.refresh_s
        or bool(facts.traffic.keys() - known.keys())
        or any(pressure.begins(each.thrash, facts.now_s, policy.thrash) for each in memory.pools.values())
    )
    if not is_due:
        return known, False
    heard = demand.heard_share(facts.activity, facts.now_s, policy.demand)
    live = {
        pool_id: Live(rates_per_s=demand.steady(facts.activity, pool_id, facts.now_s, policy.demand), heard=heard)
        for pool_id in facts.activity.traces
    }
    return heat.fold(known, facts.traffic.values(), policy.heat, live), True


def _pools(memory: Memory, now: _Turn, stored: Stored, policy: TickPolicy) -> dict[str, PoolMemory]:
    recalled: Mapping[str, Recalled] | None = None
    pools = {}
    for pool_id in sorted({standing.pool_id for standing in now.standings.values()}):
        before = memory.pools.get(pool_id)
        if before is None:
            recalled = assigning.recalled(stored.shards.values()) if recalled is None else recalled
            count = stored.owner_counts.get(pool_id, OwnerCount(pool_id=pool_id))
            needed = needs.recall(count.exceptions, now.facts.now_s)
            thrash = Thrash(pressure=stored.pressures.get(pool_id), justified_at_s=now.facts.now_s)
            before = pool.beginning(policy.pool, recalled.get(pool_id, Recalled()), needed, thrash)
        pools[pool_id] = turn.turn(before, _now(pool_id, now, policy), policy.pool)
    return pools


def _now(pool_id: str, now: _Turn, policy: TickPolicy) -> PoolNow:
    facts = now.facts
    members = {s.replica_id: s.member for s in now.standings.values() if s.pool_id == pool_id and s.owns}
    heats = now.heats.get(pool_id)
    share = needs.share_tokens_per_s(members, facts.seen, policy.need)
    return PoolNow(
        pool_id=pool_id,
        now_s=facts.now_s,
        records=now.records.pools.get(pool_id, {}),
        members=members,
        held=facts.held,
        heats=heats.classes if heats else {},
        rates=demand.rates(facts.activity, pool_id, facts.now_s, policy.demand, share),
        share=share,
        evictions_per_min={name: _evictions_per_min(facts.seen[name]) for name in members},
        anew=now.is_due,
    )


def _evictions_per_min(seen: Seen) -> float:
    return seen.report.evictions_per_min if seen.report else 0.0


def _owner_counts(
    facts: Facts, standings: Mapping[str, Standing], pools: Mapping[str, PoolMemory], owners: int, epoch: int
) -> Iterable[OwnerCount]:
    """Of every pool in sight."""
    for pool_id in sorted(set(facts.rank_classes) | {standing.pool_id for standing in standings.values()}):
        exceptions = pools[pool_id].counts if pool_id in pools else {}
        yield OwnerCount(pool_id=pool_id, owners=owners, exceptions=exceptions, epoch=epoch)


def _pressures(pools: Mapping[str, PoolMemory], epoch: int) -> Iterable[PoolPressure]:
    """Of every pool that is under pressure or was once; nobody needs to be told of the others."""
    for _, each in sorted(pools.items()):
        if each.thrash.pressure is not None:
            yield msgspec.structs.replace(each.thrash.pressure, epoch=epoch)
