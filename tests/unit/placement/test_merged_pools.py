"""Replicas with one adapter merged in: members like all others, and given nothing to hold."""

from __future__ import annotations

from services.placement.core.decide import Facts, Stored
from services.placement.core.fleet import fleet_view
from services.placement.core.membership import observe
from services.placement.core.tick import Memory, TickPolicy, on_tick
from shared.messages.desired import AssignmentShard
from shared.messages.pools import merged_pool_id
from shared.messages.reports import ReplicaReport
from tests.simulation.speakers import POOL, adapter, report

ADAPTER = adapter("acme-1")
MERGED = merged_pool_id(POOL, ADAPTER.digest)
REPORTS: tuple[ReplicaReport, ...] = (report("r1"), report("r2"), report("merged-0", pool_id=MERGED, slots=0))
FACTS = Facts(
    now_s=1.0,
    real_s=1.0,
    adapters={ADAPTER.key: ADAPTER},
    rank_classes={POOL: 16},
    seen={each.replica_id: observe(None, each, 0.0) for each in REPORTS},
    drained=frozenset(),
    held={"merged-0": {ADAPTER.key: "gpu"}},
)
DECISION = on_tick(Memory(), FACTS, Stored(), TickPolicy(), epoch=1)


def assigned() -> dict[str, AssignmentShard]:
    return {shard.replica_id: shard for _, shard in DECISION.shards.puts}


def test_gateways_are_told_of_them_in_a_pool_of_their_own() -> None:
    told = {each.pool_id: each for each in DECISION.memberships}
    (member,) = told[MERGED].members
    assert (member.replica_id, member.ready, member.weight) == ("merged-0", True, 1.0)
    assert {member.replica_id for member in told[POOL].members} == {"r1", "r2"}


def test_nothing_is_assigned_to_them_and_the_adapter_keeps_its_owners() -> None:
    shards = assigned()
    assert [each.adapter_id for name in ("r1", "r2") for each in shards[name].adapters] == ["acme-1", "acme-1"]
    assert "merged-0" not in shards or shards["merged-0"].adapters == ()


def test_the_fleets_view_shows_them_with_their_adapter() -> None:
    view = fleet_view(FACTS, DECISION.memory.standings, {}, epoch=1)
    (merged,) = [each for each in view.replicas if each.replica_id == "merged-0"]
    assert (merged.pool_id, merged.slots, merged.gpu, merged.assigned) == (MERGED, 0, 1, 0)
    assert [(each.adapter_id, each.tier) for each in merged.adapters] == [("acme-1", "gpu")]
