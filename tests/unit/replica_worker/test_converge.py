"""Convergence: what is still missing, in order, within the budgets, touching nothing in use."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.converge import AT_ONCE, Held, Known, Limits, Plan, Step, converge, startable
from shared.messages.desired import AssignedAdapter
from shared.messages.identity import AdapterKey

LIMITS = Limits(ram_budget_bytes=100, disk_budget_bytes=1_000)


def key(name: str, digest: str = "") -> AdapterKey:
    return AdapterKey(adapter_id=name, digest=digest or f"digest of {name}")


def wanted(**tiers: str) -> dict[AdapterKey, AssignedAdapter]:
    return {
        key(name): AssignedAdapter(adapter_id=name, digest=key(name).digest, role="owner", tier=tier)
        for name, tier in tiers.items()
    }


def held(gpu: str = "", ram: str = "", disk: str = "", in_use: str = "", empty_slots: int = 4) -> Held:
    return Held(
        gpu={key(name) for name in gpu}, ram={key(name) for name in ram}, disk={key(name).digest for name in disk},
        in_use={key(name) for name in in_use}, empty_slots=empty_slots,
    )  # fmt: skip


def known(names: str, size_bytes: int = 10, retired: str = "", blocked: str = "") -> Known:
    return Known(
        size_bytes={key(name): size_bytes for name in names}, ram_bytes={},
        leaving={key(name) for name in retired}, blocked={key(name) for name in blocked},
    )  # fmt: skip


def steps(plan: Plan) -> list[tuple[Step, str]]:
    return [(action.step, action.key.adapter_id) for action in plan.actions]


def test_an_adapter_is_raised_tier_by_tier_and_no_higher_than_wanted() -> None:
    plan = converge(wanted(a="gpu", b="ram", c="disk"), held(), known("abc"), LIMITS)
    assert steps(plan) == [
        (Step.FETCH, "a"), (Step.READ, "a"), (Step.LOAD, "a"),
        (Step.FETCH, "b"), (Step.READ, "b"),
        (Step.FETCH, "c"),
    ]  # fmt: skip
    assert plan.reason == "6 actions for 3 assigned adapters, 0 left out"


def test_what_is_there_needs_nothing() -> None:
    plan = converge(wanted(a="gpu", b="ram", c="disk"), held(gpu="a", ram="b", disk="abc"), known("abc"), LIMITS)
    assert plan.actions == ()


def test_a_background_load_takes_empty_slots_only() -> None:
    plan = converge(wanted(a="gpu", b="gpu"), held(ram="ab", disk="ab", empty_slots=1), known("ab"), LIMITS)
    assert steps(plan) == [(Step.LOAD, "a")]


def test_what_does_not_fit_the_budget_is_left_out_rather_than_swapped() -> None:
    plan = converge(wanted(a="ram", b="ram", c="ram"), held(), known("abc", size_bytes=50), LIMITS)
    assert [name for step, name in steps(plan) if step is Step.READ] == ["a", "b"]
    assert plan.wanted_ram == {key("a"), key("b")}
    small = msgspec.structs.replace(LIMITS, disk_budget_bytes=60)
    left_out = converge(wanted(a="ram", b="ram"), held(), known("ab", size_bytes=50), small)
    assert (steps(left_out), left_out.left_out) == ([(Step.FETCH, "a"), (Step.READ, "a")], 1)


def test_what_it_really_took_in_ram_counts() -> None:
    measured = msgspec.structs.replace(known("ab"), ram_bytes={key("a"): 95})
    plan = converge(wanted(a="ram", b="ram"), held(disk="ab"), measured, LIMITS)
    assert steps(plan) == [(Step.READ, "a")]


def test_of_each_step_only_so_many_begin_and_of_each_adapter_one() -> None:
    plan = converge(wanted(a="gpu", b="gpu", c="gpu", d="gpu"), held(ram="a", disk="ab"), known("abcd"), LIMITS)
    first = startable(plan, {})
    assert [(each.step, each.key.adapter_id) for each in first] == [
        (Step.LOAD, "a"), (Step.READ, "b"), (Step.FETCH, "c"), (Step.FETCH, "d"),
    ]  # fmt: skip
    under_way = {each.key: each.step for each in first}
    assert startable(plan, under_way) == []
    del under_way[key("c")]
    assert [each.key.adapter_id for each in startable(plan, under_way)] == ["c"]


@given(
    names=st.sets(st.sampled_from("abcdefgh")),
    on_disk=st.sets(st.sampled_from("abcdefgh")),
    begun=st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([Step.FETCH, Step.READ, Step.LOAD])),
)
def test_background_work_never_takes_all_there_is(names: set[str], on_disk: set[str], begun: dict[str, Step]) -> None:
    under_way: dict[AdapterKey, Step] = {}
    for name, step in begun.items():
        if sum(each is step for each in under_way.values()) < AT_ONCE[step]:
            under_way[key(name)] = step
    assigned = wanted(**dict.fromkeys(sorted(names), "gpu"))
    plan = converge(assigned, held(disk="".join(on_disk)), known("abcdefgh"), LIMITS)
    begin = startable(plan, under_way)
    assert not {each.key for each in begin} & under_way.keys()
    assert len({each.key for each in begin}) == len(begin)
    for step, most in AT_ONCE.items():
        assert sum(each.step is step for each in begin) + sum(each is step for each in under_way.values()) <= most


def test_what_failed_lately_or_has_no_record_waits() -> None:
    plan = converge(wanted(a="gpu", b="gpu"), held(), known("a", blocked="a"), LIMITS)
    assert (plan.actions, plan.left_out) == ((), 2)


def test_what_is_cached_but_not_assigned_stays() -> None:
    assert converge({}, held(gpu="a", ram="b", disk="abc"), known("abc"), LIMITS).actions == ()


def test_what_is_retired_leaves_every_tier_once_it_is_idle_and_not_assigned() -> None:
    facts = known("abcd", retired="abcd")
    plan = converge(wanted(d="ram"), held(gpu="a", ram="bd", disk="abcd", in_use="b"), facts, LIMITS)
    assert steps(plan) == [(Step.DROP, "a"), (Step.DROP, "c")]


def test_a_file_that_another_adapter_needs_is_no_reason_to_drop() -> None:
    twin = key("twin", key("a").digest)
    facts = Known(size_bytes={key("a"): 1, twin: 1}, ram_bytes={}, leaving={key("a")}, blocked=())
    assert converge({}, held(disk="a"), facts, LIMITS).actions == ()
    assert steps(converge({}, held(ram="a", disk="a"), facts, LIMITS)) == [(Step.DROP, "a")]


@given(
    tiers=st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["gpu", "ram", "disk"])),
    sizes=st.fixed_dictionaries({name: st.integers(1, 60) for name in "abcdefgh"}),
    slots=st.integers(0, 3),
    retired=st.sets(st.sampled_from("abcdefgh")),
)
def test_doing_what_is_planned_ends_and_stays_within_the_budgets(
    tiers: dict[str, str], sizes: dict[str, int], slots: int, retired: set[str]
) -> None:
    facts = Known(
        size_bytes={key(name): size for name, size in sizes.items()}, ram_bytes={},
        leaving={key(name) for name in retired}, blocked=(),
    )  # fmt: skip
    gpu: set[AdapterKey] = set()
    ram: set[AdapterKey] = set()
    disk: set[str] = {key(name).digest for name in retired}
    for _ in range(60):
        now = Held(gpu=gpu, ram=ram, disk=disk, in_use=(), empty_slots=slots - len(gpu))
        plan = converge(wanted(**tiers), now, facts, LIMITS)
        if not plan.actions:
            break
        action = plan.actions[0]
        if action.step is Step.DROP:
            disk.discard(action.key.digest)
        elif action.step is Step.FETCH:
            disk.add(action.key.digest)
        elif action.step is Step.READ:
            assert action.key.digest in disk
            ram.add(action.key)
        else:
            assert action.key in ram
            gpu.add(action.key)
    assert plan.actions == ()
    assert len(gpu) <= slots
    assert sum(sizes[each.adapter_id] for each in ram) <= LIMITS.ram_budget_bytes
    assert not any(key(name).digest in disk for name in retired - tiers.keys())
