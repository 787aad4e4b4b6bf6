"""Plans: every adapter has its owners, and no replica is asked for more than it has."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.owners import Rankings
from services.placement.core.plan import PoolDemand, ReplicaPlan, Share, plan, plan_replica
from shared.messages.desired import AdapterRecord, Member, OwnerCount
from shared.messages.identity import AdapterKey
from tests.simulation.speakers import MIB, POOL, adapter

GIB = 1024 * MIB


def member(
    replica_id: str, *, slots: int = 4, ram_bytes: int = GIB, disk_bytes: int = GIB, rank_limit: int = 64
) -> Member:
    return Member(
        replica_id=replica_id,
        incarnation="first",
        weight=1.0,
        slots=slots,
        rank_limit=rank_limit,
        ram_budget_bytes=ram_bytes,
        disk_budget_bytes=disk_bytes,
        ready=True,
    )


def tiers(made: ReplicaPlan) -> dict[str, str]:
    return {assigned.adapter_id: assigned.tier for assigned in made.adapters}


def first_owned(*records: AdapterRecord) -> list[Share]:
    return [Share(record, 0) for record in records]


def test_c70_slots_ram_and_disk_are_each_respected() -> None:
    shares = first_owned(*(adapter(f"a{number}") for number in range(6)))
    made = plan_replica(member("r1", slots=1, ram_bytes=3 * MIB, disk_bytes=5 * MIB), shares, {})
    assert tiers(made) == {"a0": "gpu", "a1": "ram", "a2": "ram", "a3": "disk", "a4": "disk"}
    assert (made.left_out, made.reason) == (1, "1 gpu, 2 ram, 2 disk; 1 beyond the disk budget")


def test_c70_a_replica_without_slots_still_keeps_adapters_in_ram() -> None:
    assert tiers(plan_replica(member("r1", slots=0), first_owned(adapter("a")), {})) == {"a": "ram"}


def test_only_the_first_owner_keeps_a_slot() -> None:
    assert tiers(plan_replica(member("r1"), [Share(adapter("a"), 1)], {})) == {"a": "ram"}


def test_a_candidate_is_warm_for_its_evaluation_but_takes_no_slot() -> None:
    shares = first_owned(adapter("v", status="verified"), adapter("e", status="evaluating"))
    assert tiers(plan_replica(member("r1"), shares, {})) == {"v": "ram", "e": "ram"}


def test_what_is_held_stays_when_the_budget_is_full() -> None:
    old, new = adapter("z-old"), adapter("a-new")
    made = plan_replica(member("r1", slots=1, ram_bytes=MIB), first_owned(new, old), {old.key: "gpu"})
    assert tiers(made) == {"z-old": "gpu", "a-new": "disk"}


def test_the_hot_take_the_best_places_even_from_what_is_held() -> None:
    held_one, hot = Share(adapter("a-held"), 0, 1), Share(adapter("z-hot"), 0, 6)
    made = plan_replica(member("r1", slots=1, ram_bytes=MIB), [held_one, hot], {held_one.record.key: "gpu"})
    assert tiers(made) == {"z-hot": "gpu", "a-held": "disk"}
    assert {each.adapter_id: each.heat for each in made.adapters} == {"z-hot": 6, "a-held": 1}


def test_a_candidate_does_not_push_out_what_customers_use_however_hot() -> None:
    shares = [Share(adapter("candidate", status="evaluating"), 0, 9), Share(adapter("active"), 0, 0)]
    assert tiers(plan_replica(member("r1", ram_bytes=MIB), shares, {})) == {"active": "gpu", "candidate": "disk"}


def test_what_nobody_wants_is_nowhere_though_it_is_active() -> None:
    unwanted = msgspec.structs.replace(adapter("unwanted"), wanted=False)
    demand = PoolDemand(
        adapters=[unwanted, adapter("here")], members={"r1": member("r1")}, owner_count=OwnerCount(pool_id=POOL),
        held={"r1": {unwanted.key: "gpu"}}, heats={"unwanted": 9, "here": 2},
    )  # fmt: skip
    made = plan(demand, Rankings({"r1": 1.0}))["r1"]
    assert [(each.adapter_id, each.heat) for each in made.adapters] == [("here", 2)]


def test_a_gap_that_is_too_small_for_one_is_used_by_the_next() -> None:
    shares = first_owned(adapter("big", size_bytes=3 * MIB), adapter("small", size_bytes=MIB))
    held = {adapter("big").key: "disk"}
    made = plan_replica(member("r1", ram_bytes=2 * MIB), shares, held)
    assert tiers(made) == {"big": "disk", "small": "gpu"}


def test_retired_and_failed_adapters_are_nowhere() -> None:
    records = [adapter("gone", status="retired"), adapter("bad", status="failed"), adapter("here")]
    demand = PoolDemand(adapters=records, members={"r1": member("r1")}, owner_count=OwnerCount(pool_id=POOL), held={})
    assert tiers(plan(demand, Rankings({"r1": 1.0}))["r1"]) == {"here": "gpu"}


MEMBERS = st.builds(
    member,
    st.just("?"),
    slots=st.integers(0, 3),
    ram_bytes=st.integers(0, 12),
    disk_bytes=st.integers(0, 24),
    rank_limit=st.sampled_from([8, 16, 64]),
)
ADAPTERS = st.builds(
    lambda number, status, rank, size_bytes: adapter(f"a{number}", status=status, rank=rank, size_bytes=size_bytes),
    st.integers(0, 60),
    st.sampled_from(["active", "active", "evaluating", "verified", "retired"]),
    st.sampled_from([8, 16, 64]),
    st.integers(1, 5),
)
DEMANDS = st.builds(
    lambda members, adapters, owners: PoolDemand(
        adapters=adapters,
        members={
            f"r{number}": msgspec.structs.replace(found, replica_id=f"r{number}")
            for number, found in enumerate(members)
        },
        owner_count=OwnerCount(pool_id=POOL, owners=owners),
        held={},
    ),
    st.lists(MEMBERS, max_size=6),
    st.lists(ADAPTERS, max_size=30, unique_by=lambda record: record.adapter_id),
    st.integers(1, 4),
)


def made_from(demand: PoolDemand) -> dict[str, ReplicaPlan]:
    return plan(demand, Rankings({name: found.weight for name, found in demand.members.items()}))


@given(DEMANDS)
def test_every_placed_adapter_has_min_k_usable_distinct_owners(demand: PoolDemand) -> None:
    roomy = msgspec.structs.replace(
        demand,
        members={name: msgspec.structs.replace(found, disk_budget_bytes=GIB) for name, found in demand.members.items()},
    )
    plans = made_from(roomy)
    for record in demand.adapters:
        owners = [name for name, made in plans.items() if record.adapter_id in tiers(made)]
        usable = [name for name, found in demand.members.items() if found.rank_limit >= record.rank]
        placed = record.status != "retired"
        assert len(owners) == (min(demand.owner_count.owners, len(usable)) if placed else 0)
        assert set(owners) <= set(usable)


@given(DEMANDS)
def test_budgets_are_never_exceeded(demand: PoolDemand) -> None:
    size_bytes = {record.adapter_id: record.size_bytes for record in demand.adapters}
    for name, made in made_from(demand).items():
        found, assigned = demand.members[name], tiers(made)
        in_ram = [key for key, tier in assigned.items() if tier != "disk"]
        assert len(assigned) == len(made.adapters)
        assert list(assigned.values()).count("gpu") <= found.slots
        assert sum(size_bytes[key] for key in in_ram) <= found.ram_budget_bytes
        assert sum(size_bytes[key] for key in assigned) <= found.disk_budget_bytes


@given(DEMANDS)
def test_a_plan_that_was_carried_out_is_planned_again(demand: PoolDemand) -> None:
    plans = made_from(demand)
    held = {
        name: {AdapterKey(adapter_id=a.adapter_id, digest=a.digest): a.tier for a in made.adapters}
        for name, made in plans.items()
    }
    again = made_from(msgspec.structs.replace(demand, held=held))
    assert {name: tiers(made) for name, made in again.items()} == {name: tiers(made) for name, made in plans.items()}
