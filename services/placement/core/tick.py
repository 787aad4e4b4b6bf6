"""Placement's whole decision, as one pure function: from what is known and stored to what should be stored.

The live service and the twin both call `on_tick`, and nothing else decides where adapters are held.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.placement.core import decide, heat
from services.placement.core.decide import Facts, PhaseChange, Plannable, Stored
from services.placement.core.demand import DemandPolicy
from services.placement.core.heat import HeatPolicy, Heats
from services.placement.core.membership import MembershipPolicy, Standing, owners_weights
from services.placement.core.owners import Rankings
from services.placement.core.plan import ReplicaPlan
from services.placement.core.shards import ShardChanges, differences
from shared.messages.desired import Membership, OwnerCount, PoolPressure


class TickPolicy(msgspec.Struct, frozen=True, kw_only=True):
    membership: MembershipPolicy = MembershipPolicy()
    heat: HeatPolicy = HeatPolicy()
    demand: DemandPolicy = DemandPolicy()
    owners: int = 2
    refresh_s: float = 60.0
    """How often plans follow what replicas really hold, and how busy adapters have become."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick leaves for the next; `Memory()` is the beginning."""

    standings: Mapping[str, Standing] = {}
    rankings: Mapping[str, Rankings] = {}
    heats: Heats | None = None
    plans: Mapping[str, ReplicaPlan] = {}
    planned_for: object = None
    """What the plans depend on, as it was; None: plan anew, whatever has changed or not."""
    planned_at_s: float = 0.0

    def doubting(self) -> Memory:
        """After a write that failed, or when what is stored was read anew: compare and plan from scratch."""
        return msgspec.structs.replace(self, planned_for=None)


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
    have written."""
    standings = decide.judge_all(facts, policy.membership)
    memberships = decide.memberships(standings, stored.memberships, epoch)
    counts = decide.owner_counts(facts, standings, stored.owner_counts, policy.owners, epoch)
    heats, is_due = _heats(memory, facts, stored, policy)
    basis = facts.adapters, {name: (s.phase, s.member) for name, s in standings.items()}
    plans, rankings, changes = memory.plans, memory.rankings, ShardChanges(puts=(), deletes=())
    if is_due or basis != memory.planned_for:
        rankings = _rankings(memory.rankings, standings)
        given = Plannable(
            standings=standings,
            owner_counts={count.pool_id: count for count in counts},
            rankings=rankings,
            heats=heat.by_adapter(heats),
        )
        intent = decide.intend(facts, given, stored.shards, epoch)
        plans, changes = intent.plans, differences(stored.shards, intent.shards)
    return Decision(
        memberships=tuple(memberships),
        owner_counts=tuple(counts),
        shards=changes,
        pressures=(),
        plans=plans,
        memory=Memory(
            standings=standings,
            rankings=rankings,
            heats=heats,
            plans=plans,
            planned_for=basis,
            planned_at_s=facts.now_s if is_due else memory.planned_at_s,
        ),
        reasons=tuple(_sentence(change) for change in decide.phase_changes(memory.standings, standings)),
    )


def after(stored: Stored, decision: Decision) -> Stored:
    """What is stored once the decision has been carried out in full."""
    shards = {key: shard for key, shard in stored.shards.items() if key not in decision.shards.deletes}
    return Stored(
        memberships={**stored.memberships, **{value.pool_id: value for value in decision.memberships}},
        owner_counts={**stored.owner_counts, **{value.pool_id: value for value in decision.owner_counts}},
        pressures={**stored.pressures, **{value.pool_id: value for value in decision.pressures}},
        shards=shards | dict(decision.shards.puts),
    )


def _sentence(change: PhaseChange) -> str:
    return f"{change.replica_id} was {change.was} and is {change.phase}: {change.reason}"


def _heats(memory: Memory, facts: Facts, stored: Stored, policy: TickPolicy) -> tuple[Heats, bool]:
    """How busy adapters are, and whether it is time to look: with a refresh, or when a pool was unknown so far."""
    known = memory.heats if memory.heats is not None else heat.recall(stored.shards.values(), policy.heat)
    is_due = memory.planned_for is None or facts.now_s - memory.planned_at_s >= policy.refresh_s
    if not is_due and not facts.traffic.keys() - known.keys():
        return known, False
    return heat.fold(known, facts.traffic.values(), policy.heat), True


def _rankings(before: Mapping[str, Rankings], standings: Mapping[str, Standing]) -> dict[str, Rankings]:
    rankings = {}
    for pool_id in sorted({standing.pool_id for standing in standings.values()}):
        weights = owners_weights(standings, pool_id)
        rankings[pool_id] = before.get(pool_id, Rankings(weights)).under(weights)
    return rankings
