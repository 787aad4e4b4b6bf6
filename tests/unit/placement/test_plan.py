"""Plans: every adapter has its owners, and no replica is asked for more than it has."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.plan import ReplicaPlan, Share, plan_replica
from services.placement.core.pool import PoolNow, PoolPolicy, Recalled, beginning
from services.placement.core.pressure import Thrash
from services.placement.core.turn import turn
from shared.messages.desired import AdapterRecord, Member
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


def test_a_pinned_adapter_comes_before_the_hot_and_before_what_is_held() -> None:
    pinned = msgspec.structs.replace(adapter("z-pinned"), pinned=True)
    hot = Share(adapter("a-hot"), 0, 9)
    made = plan_replica(member("r1", slots=1, ram_bytes=MIB), [hot, Share(pinned, 1, 0, True)], {hot.record.key: "gpu"})
    assert tiers(made) == {"z-pinned": "gpu", "a-hot": "disk"}


def test_an_owner_that_is_told_to_leave_a_slot_to_another_does() -> None:
    shares = [Share(adapter("elsewhere"), 0, 5, False), Share(adapter("here"), 1, 2, True), Share(adapter("quiet"), 0)]
    assert tiers(plan_replica(member("r1"), shares, {})) == {"elsewhere": "ram", "here": "gpu", "quiet": "gpu"}


def test_a_gap_that_is_too_small_for_one_is_used_by_the_next() -> None:
    shares = first_owned(adapter("big", size_bytes=3 * MIB), adapter("small", size_bytes=MIB))
    held = {adapter("big").key: "disk"}
    made = plan_replica(member("r1", ram_bytes=2 * MIB), shares, held)
    assert tiers(made) == {"big": "disk", "small": "gpu"}


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
POOLS = st.builds(
    lambda members, adapters, heats: PoolNow(
        pool_id=POOL,
        now_s=0.0,
        records={record.adapter_id: record for record in adapters},
        members={
            f"r{number}": msgspec.structs.replace(found, replica_id=f"r{number}")
            for number, found in enumerate(members)
        },
        held={},
        heats=heats,
        rates={},
        share=448.0,
    ),
    st.lists(MEMBERS, max_size=6),
    st.lists(ADAPTERS, max_size=30, unique_by=lambda record: record.adapter_id),
    st.dictionaries(st.sampled_from([f"a{number}" for number in range(60)]), st.integers(1, 9), max_size=20),
)


def made_from(now: PoolNow, owners: int = 2) -> dict[str, ReplicaPlan]:
    policy = PoolPolicy(owners=owners)
    return dict(turn(beginning(policy, Recalled(), {}, Thrash()), now, policy).plans)


@given(POOLS, st.integers(1, 4))
def test_every_adapter_has_min_k_usable_distinct_owners(now: PoolNow, owners: int) -> None:
    roomy = msgspec.structs.replace(
        now,
        members={name: msgspec.structs.replace(found, disk_budget_bytes=GIB) for name, found in now.members.items()},
    )
    plans = made_from(roomy, owners)
    for record in now.records.values():
        found = [name for name, made in plans.items() if record.adapter_id in tiers(made)]
        usable = [name for name, member in now.members.items() if member.rank_limit >= record.rank]
        assert len(found) == min(owners, len(usable))
        assert set(found) <= set(usable)


@given(POOLS)
def test_budgets_are_never_exceeded(now: PoolNow) -> None:
    size_bytes = {record.adapter_id: record.size_bytes for record in now.records.values()}
    for name, made in made_from(now).items():
        found, assigned = now.members[name], tiers(made)
        in_ram = [key for key, tier in assigned.items() if tier != "disk"]
        assert len(assigned) == len(made.adapters)
        assert list(assigned.values()).count("gpu") <= found.slots
        assert sum(size_bytes[key] for key in in_ram) <= found.ram_budget_bytes
        assert sum(size_bytes[key] for key in assigned) <= found.disk_budget_bytes


@given(POOLS)
def test_a_plan_that_was_carried_out_is_planned_again(now: PoolNow) -> None:
    plans = made_from(now)
    held = {
        name: {AdapterKey(adapter_id=a.adapter_id, digest=a.digest): a.tier for a in made.adapters}
        for name, made in plans.items()
    }
    again = made_from(msgspec.structs.replace(now, held=held))
    assert {name: tiers(made) for name, made in again.items()} == {name: tiers(made) for name, made in plans.items()}


SHARES = st.lists(
    st.builds(
        lambda record, position, heat, slot, pinned: Share(
            msgspec.structs.replace(record, pinned=pinned), position, heat, slot
        ),
        ADAPTERS,
        st.integers(0, 2),
        st.integers(0, 3),
        st.sampled_from([None, True, False]),
        st.booleans(),
    ),
    max_size=20,
    unique_by=lambda share: share.record.adapter_id,
)


@given(
    MEMBERS,
    SHARES,
    st.dictionaries(st.integers(0, 60), st.sampled_from(["gpu", "ram", "disk"])),
    st.sampled_from([0, 10, 20, 200]),
)
def test_where_all_fit_the_tiers_are_those_of_serving_one_after_the_other(
    found: Member, shares: list[Share], held: dict[int, str], more_bytes: int
) -> None:
    """Of the member's budgets some are too small for all, some just large enough, and some far too large."""
    roomy = msgspec.structs.replace(
        found,
        ram_budget_bytes=found.ram_budget_bytes + more_bytes,
        disk_budget_bytes=found.disk_budget_bytes + more_bytes,
    )
    there = {adapter(f"a{number}").key: tier for number, tier in held.items()}
    assert tiers(plan_replica(roomy, shares, there)) == one_after_the_other(roomy, shares, there)


def one_after_the_other(found: Member, shares: list[Share], held: dict[AdapterKey, str]) -> dict[str, str]:
    order = {"gpu": 0, "ram": 1, "disk": 2}
    served, slots, ram, disk = {}, found.slots, found.ram_budget_bytes, found.disk_budget_bytes
    for share in sorted(
        shares,
        key=lambda each: (
            each.record.status != "active",
            not each.record.pinned,
            -each.heat,
            order.get(held.get(each.record.key, ""), 3),
            each.position,
            each.record.size_bytes,
            each.record.adapter_id,
        ),
    ):
        size = share.record.size_bytes
        if size > disk:
            continue
        tier = "disk" if size > ram else "gpu" if share.takes_slot and slots else "ram"
        served[share.record.adapter_id] = tier
        disk, ram, slots = disk - size, ram - size * (tier != "disk"), slots - (tier == "gpu")
    return served
