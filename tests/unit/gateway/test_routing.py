"""Which replica is chosen, and the sentence that says why."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.fleet import Candidate
from services.gateway.core.routing import Choice, NoChoice, Question, RoutingPolicy, choose, choose_merged
from shared.hashing import rank
from shared.messages.identity import AdapterKey

ADAPTER = AdapterKey(adapter_id="acme-1", digest="a" * 64)
POLICY = RoutingPolicy(margin_tokens=1_000)
FIRST, SECOND, THIRD = rank("acme-1", {"r0": 1.0, "r1": 1.0, "r2": 1.0})


def candidate(replica_id: str, **changes: Any) -> Candidate:
    made = Candidate(
        replica_id=replica_id, pool_id="p", incarnation="i", weight=1.0, load_tokens=0, requests=0, max_rows=8,
        tier="remote",
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def question(**changes: Any) -> Question:
    return msgspec.structs.replace(Question(adapter=ADAPTER, pool_ids=("p",), tokens=100), **changes)


def chosen(*candidates: Candidate, owners: int = 2, **changes: Any) -> Choice:
    choice = choose(question(**changes), owners, candidates, POLICY)
    assert isinstance(choice, Choice), choice
    return choice


def fleet(first: dict[str, Any], second: dict[str, Any], third: dict[str, Any] | None = None) -> list[Candidate]:
    return [candidate(FIRST, **first), candidate(SECOND, **second), candidate(THIRD, **(third or {}))]


def test_c67_the_resident_owner_is_preferred() -> None:
    choice = chosen(*fleet({}, {"tier": "gpu", "load_tokens": 999}))
    assert (choice.replica_id, choice.reason) == (SECOND, "the resident owner")


def test_another_owner_that_is_lighter_by_more_than_the_margin_wins() -> None:
    choice = chosen(*fleet({}, {"tier": "gpu", "load_tokens": 1_001}))
    assert choice.replica_id == FIRST
    assert choice.reason == "lighter than the resident owner by more than 1000 tokens"


def test_of_two_resident_owners_the_lighter_is_taken() -> None:
    assert chosen(*fleet({"tier": "gpu", "load_tokens": 2}, {"tier": "gpu", "load_tokens": 1})).replica_id == SECOND


def test_ram_counts_before_disk_and_nothing() -> None:
    assert chosen(*fleet({"tier": "disk"}, {"tier": "ram", "load_tokens": 5})).replica_id == SECOND
    assert chosen(*fleet({"tier": "ram"}, {"tier": "gpu"})).replica_id == SECOND


def test_where_nobody_is_warm_rank_decides_so_that_one_owner_warms_up() -> None:
    choice = chosen(*fleet({"load_tokens": 500}, {"tier": "disk"}))
    assert (choice.replica_id, choice.reason) == (FIRST, "the first-ranked owner")


def test_a_replica_that_holds_it_but_does_not_own_it_is_not_preferred() -> None:
    assert chosen(*fleet({}, {}, {"tier": "gpu"})).replica_id == FIRST


def test_an_owner_that_cannot_be_used_leaves_the_other() -> None:
    assert chosen(*fleet({"unusable": "it drains"}, {})).replica_id == SECOND
    assert chosen(*fleet({}, {}), tried=frozenset((FIRST,))).replica_id == SECOND


def test_without_any_owner_the_next_in_the_ranking_is_taken() -> None:
    choice = chosen(*fleet({"unusable": "x"}, {"unusable": "x"}))
    assert (choice.replica_id, choice.reason) == (THIRD, "no owner can take it: the next in the ranking")


def test_more_owners_for_a_hot_adapter() -> None:
    assert chosen(*fleet({}, {}, {"tier": "gpu"}), owners=3).replica_id == THIRD


def test_overloaded_owners_spill_once_the_pool_is_busy() -> None:
    busy = {"requests": 8, "load_tokens": 10_000, "tier": "gpu"}
    assert chosen(*fleet(busy, busy, {"requests": 2, "load_tokens": 100})).replica_id == THIRD
    calm = {**busy, "requests": 3}
    assert chosen(*fleet(calm, calm, {"requests": 2, "load_tokens": 9_500})).replica_id != THIRD


def test_a_single_replica_is_never_too_full() -> None:
    assert chosen(candidate("r0", requests=80, load_tokens=10**6)).replica_id == "r0"


def test_base_requests_go_where_least_is_going_on() -> None:
    choice = chosen(candidate("r0", load_tokens=5), candidate("r1", load_tokens=4), adapter=None)
    assert (choice.replica_id, choice.reason) == ("r1", "the least loaded replica of the base model")


def test_a_heavier_replica_may_carry_more() -> None:
    light, heavy = candidate("r0", load_tokens=5), candidate("r1", load_tokens=8, weight=2.0)
    assert chosen(light, heavy, adapter=None).replica_id == "r1"


def test_c41_when_nobody_can_the_reason_names_everyone() -> None:
    outcome = choose(
        question(tried=frozenset((FIRST,))), 2, fleet({}, {"unusable": "it drains"}, {"unusable": "old"}), POLICY
    )
    assert isinstance(outcome, NoChoice)
    assert f"{FIRST}: already tried" in outcome.reason
    assert f"{SECOND}: it drains" in outcome.reason
    empty = choose(question(), 2, [], POLICY)
    assert empty == NoChoice(reason="No replica serves this model's pool at the moment.", may_change=True)


def test_waiting_makes_sense_as_long_as_somebody_was_not_tried() -> None:
    everyone = [{"unusable": "it drains"}, {}, {}]
    all_but_one = choose(question(tried=frozenset((SECOND, THIRD))), 2, fleet(*everyone), POLICY)
    all_of_them = choose(question(tried=frozenset((FIRST, SECOND, THIRD))), 2, fleet(*everyone), POLICY)
    assert [outcome.may_change for outcome in (all_but_one, all_of_them) if isinstance(outcome, NoChoice)] == [
        True,
        False,
    ]


def test_the_margin_grows_with_the_request() -> None:
    candidates = fleet({}, {"tier": "gpu", "load_tokens": 1_900})
    assert chosen(*candidates).replica_id == FIRST
    assert chosen(*candidates, tokens=1_000).replica_id == SECOND


candidates = st.lists(
    st.builds(
        Candidate,
        replica_id=st.sampled_from([f"r{index}" for index in range(8)]),
        pool_id=st.just("p"),
        incarnation=st.just("i"),
        weight=st.floats(0.5, 2.0),
        load_tokens=st.integers(0, 50_000),
        requests=st.integers(0, 20),
        max_rows=st.integers(1, 16),
        tier=st.sampled_from(["gpu", "ram", "disk", "remote"]),
        unusable=st.sampled_from(["", "", "it drains"]),
    ),
    unique_by=lambda candidate: candidate.replica_id,
)


@given(candidates, st.sets(st.sampled_from([f"r{index}" for index in range(8)])), st.integers(1, 4))
def test_only_what_can_be_used_is_chosen_and_always_if_there_is_one(
    members: list[Candidate], tried: set[str], owners: int
) -> None:
    usable = {c.replica_id for c in members if not c.unusable} - tried
    outcome = choose(question(tried=frozenset(tried)), owners, members, POLICY)
    assert outcome.replica_id in usable if isinstance(outcome, Choice) else not usable


@given(candidates)
def test_the_choice_does_not_depend_on_the_order_of_the_members(members: list[Candidate]) -> None:
    assert choose(question(), 2, members, POLICY) == choose(question(), 2, members[::-1], POLICY)


def merged(**changes: Any) -> Candidate:
    return candidate("m0", pool_id="p-m", tier="gpu", **changes)


def test_a_replica_with_the_adapter_merged_in_goes_first() -> None:
    choice = choose_merged(question(), 2, [merged(load_tokens=90_000, requests=7)], fleet({"tier": "gpu"}, {}), POLICY)
    assert choice == Choice(
        replica_id="m0", pool_id="p-m", incarnation="i", reason="this replica has the adapter merged in", rule="merged"
    )


def test_of_two_merged_replicas_the_lighter_one_with_a_free_row() -> None:
    other = msgspec.structs.replace(merged(load_tokens=5), replica_id="m1")
    for full, expected in ((1, "m0"), (8, "m1")):
        choice = choose_merged(question(), 2, [merged(load_tokens=1, requests=full), other], (), POLICY)
        assert isinstance(choice, Choice)
        assert choice.replica_id == expected


def test_without_a_merged_replica_that_can_take_it_owners_are_asked_as_ever() -> None:
    owners = fleet({"tier": "gpu"}, {})
    expected = choose(question(), 2, owners, POLICY)
    for gone in ([], [merged(unusable="its last report is older than 3 s")], [merged(requests=8)]):
        assert choose_merged(question(), 2, gone, owners, POLICY) == expected
    refused = question(tried=frozenset(("m0",)))
    assert choose_merged(refused, 2, [merged()], owners, POLICY) == choose(refused, 2, owners, POLICY)


def test_another_adapter_with_the_same_bytes_is_not_asked_of_a_merged_replica() -> None:
    other = msgspec.structs.replace(merged(), tier="remote")
    owners = fleet({"tier": "gpu"}, {})
    assert choose_merged(question(), 2, [other], owners, POLICY) == choose(question(), 2, owners, POLICY)
    nobody = choose_merged(question(), 2, [other], fleet(*[{"unusable": "it drains"}] * 3), POLICY)
    assert isinstance(nobody, NoChoice)
    assert "m0" not in nobody.reason


def test_a_full_merged_replica_is_better_than_none() -> None:
    choice = choose_merged(question(), 2, [merged(requests=8)], fleet(*[{"unusable": "it drains"}] * 3), POLICY)
    assert isinstance(choice, Choice)
    assert (choice.replica_id, choice.pool_id) == ("m0", "p-m")
    assert "nobody else" in choice.reason


def test_when_nobody_can_take_it_the_reason_names_merged_replicas_too() -> None:
    nobody = choose_merged(question(), 2, [merged(unusable="it drains")], fleet(*[{"unusable": "x"}] * 3), POLICY)
    assert isinstance(nobody, NoChoice)
    assert "m0: it drains" in nobody.reason
    assert nobody.may_change
