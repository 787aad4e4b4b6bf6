"""Which replica is chosen, by which rule, and the sentence that says why."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from services.gateway.core.question import RULES, Choice, Question, RoutingPolicy
from services.gateway.core.routing import is_sampled, route
from shared.hashing import rank
from shared.messages.identity import AdapterKey
from tests.unit.gateway import samples
from tests.unit.gateway.hall import MERGED, Hall
from tests.unit.gateway.samples import ADAPTER, POOL

FIRST, SECOND, THIRD = rank(ADAPTER.adapter_id, {"r0": 1.0, "r1": 1.0, "r2": 1.0})


def hall(first: dict[str, Any], second: dict[str, Any], third: dict[str, Any] | None = None, **policy: Any) -> Hall:
    """Three replicas in the order in which they own ADAPTER, eight rows each."""
    made = Hall(RoutingPolicy(**{"margin_tokens": 1_000, **policy}))
    for replica_id, facts in zip((FIRST, SECOND, THIRD), (first, second, third or {}), strict=True):
        made.seat(replica_id, **facts)
    return made


def test_c67_an_idle_resident_adapter_is_asked_where_it_is_however_long_ago() -> None:
    idle = hall({"load": 500}, {"tier": "gpu", "load": 999})
    assert idle.chosen() == (SECOND, "resident")
    for second in range(60):
        for replica_id, load in ((FIRST, 500), (SECOND, 999), (THIRD, 0)):
            idle.report(replica_id, now_s=float(second), load=load)
    assert idle.chosen(now_s=60.0) == (SECOND, "resident")


def test_another_owner_that_is_lighter_by_more_than_the_margin_wins() -> None:
    uneven = hall({}, {"tier": "gpu", "load": 1_001})
    assert uneven.chosen() == (FIRST, "margin")
    choice = uneven.ask()
    assert choice.reason == "lighter than the resident owner by more than 1000 tokens"
    assert hall({}, {"tier": "gpu", "load": 1_000}).chosen() == (SECOND, "resident")


def test_of_two_resident_owners_the_lighter_is_taken() -> None:
    assert hall({"tier": "gpu", "load": 2}, {"tier": "gpu", "load": 1}).chosen() == (SECOND, "resident")
    assert hall({"tier": "gpu", "load": 1}, {"tier": "gpu", "load": 1}).chosen() == (FIRST, "resident")


def test_what_was_just_sent_counts_twice_among_resident_owners() -> None:
    """Its prompt is not computed yet, and the next one would wait for it."""
    even = hall({"tier": "gpu", "load": 1_000}, {"tier": "gpu", "load": 1_150})
    even.fleet.sends(FIRST).sent("q", 100)
    assert even.chosen() == (SECOND, "resident")
    even.fleet.sends(FIRST).answered("q")
    even.report(FIRST, load=1_100)
    assert even.chosen() == (FIRST, "resident")


def test_load_decides_among_all_resident_owners_of_a_hot_adapter() -> None:
    hot = hall(*({"tier": "gpu", "load": load} for load in (3, 2, 1)))
    assert hot.chosen() == (SECOND, "resident")
    hot.fleet.put_owner_count(POOL, samples.owner_count(exceptions={ADAPTER.adapter_id: 3}))
    assert hot.chosen() == (THIRD, "resident")


def test_ram_counts_before_disk_and_nothing() -> None:
    assert hall({"tier": "disk"}, {"tier": "ram", "load": 5}).chosen() == (SECOND, "ram")
    assert hall({"tier": "ram"}, {"tier": "gpu"}).chosen() == (SECOND, "resident")


def test_where_nobody_is_warm_rank_decides_so_that_one_owner_warms_up() -> None:
    assert hall({"load": 500}, {"tier": "disk"}).chosen() == (FIRST, "first")
    assert hall({"tier": "ram", "load": 500}, {"tier": "ram"}).chosen() == (FIRST, "ram")


def test_a_replica_that_holds_it_but_does_not_own_it_is_not_preferred() -> None:
    assert hall({}, {}, {"tier": "gpu"}).chosen() == (FIRST, "first")


def test_an_owner_that_cannot_be_used_leaves_the_other() -> None:
    assert hall({"draining": True}, {}).chosen() == (SECOND, "first")
    assert hall({}, {}).chosen(tried=(FIRST,)) == (SECOND, "first")


def test_without_any_owner_the_next_in_the_ranking_is_taken() -> None:
    assert hall({"ready": False}, {"draining": True}).chosen() == (THIRD, "spill_next")
    other = hall({"ready": False}, {"draining": True}, overflow="least_loaded")
    assert other.chosen() == (THIRD, "spill_lightest")


def test_overloaded_owners_spill_once_the_pool_is_busy() -> None:
    busy = {"requests": 8, "load": 10_000, "tier": "gpu"}
    assert hall(busy, busy, {"requests": 2, "load": 100}).chosen() == (THIRD, "spill_next")
    assert hall(busy, busy, {"requests": 2, "load": 100}, bounded=False).chosen() == (FIRST, "resident")
    calm = {**busy, "requests": 3}
    assert hall(calm, calm, {"requests": 2, "load": 9_500}).chosen() == (FIRST, "resident")


def test_a_spill_goes_to_who_has_it_from_an_earlier_spill() -> None:
    """Four replicas, of which the last in the ranking got it when the owners were full before."""
    order = rank(ADAPTER.adapter_id, dict.fromkeys(("r0", "r1", "r2", "r3"), 1.0))
    for overflow in ("next", "least_loaded"):
        crowd = Hall(RoutingPolicy(overflow=overflow))
        for replica_id in order[:2]:
            crowd.seat(replica_id, requests=8, load=10_000)
        crowd.seat(order[2], requests=4, load=100)
        crowd.seat(order[3], requests=4, load=900)
        assert crowd.chosen()[0] == order[2]
        crowd.fleet.on_residency(samples.residency(order[3], "gpu"), 0.0)
        assert crowd.chosen() == (order[3], "spill_resident")
        crowd.report(order[3], requests=4, load=900, incarnation="another")
        assert crowd.chosen()[0] == order[2]


def loaded(requests: int, tier: str = "remote") -> dict[str, Any]:
    """Rows of eight, and as many tokens everywhere: nobody is past the bound."""
    return {"requests": requests, "tier": tier, "load": 1_000}


def test_an_owner_whose_rows_are_taken_leaves_it_to_who_has_it_at_hand() -> None:
    full = loaded(8, "gpu")
    assert hall(full, loaded(7, "ram"), loaded(0)).chosen() == (SECOND, "ram")
    assert hall(full, loaded(8), loaded(7, "gpu")).chosen() == (THIRD, "spill_resident")
    assert hall(full, loaded(8), loaded(7, "ram")).chosen() == (THIRD, "spill_ram")
    assert hall(full, loaded(7, "ram"), loaded(0), bounded=False).chosen() == (FIRST, "resident")


def test_it_waits_at_an_owner_until_waiting_takes_longer_than_fetching() -> None:
    def crowded(first: int, second: int, third: int, **policy: Any) -> tuple[str, str]:
        return hall(loaded(first, "gpu"), loaded(second), loaded(third), **policy).chosen()

    assert crowded(9, 9, 0) == (FIRST, "queue")
    assert crowded(9, 8, 0) == (SECOND, "queue")
    assert crowded(10, 10, 7) == (THIRD, "spill_next")
    assert crowded(10, 10, 7, overflow="least_loaded") == (THIRD, "spill_lightest")
    assert crowded(8, 8, 7, spill_waiting=0) == (THIRD, "spill_next")
    assert crowded(10, 10, 8) == (FIRST, "resident"), "nobody has a free row"


def test_a_spill_may_go_to_the_least_loaded_rather_than_to_the_next() -> None:
    order = rank(ADAPTER.adapter_id, dict.fromkeys(("r0", "r1", "r2", "r3"), 1.0))
    crowd = Hall(RoutingPolicy(overflow="least_loaded"))
    for replica_id in order[:2]:
        crowd.seat(replica_id, requests=8, load=10_000)
    crowd.seat(order[2], requests=4, load=900)
    crowd.seat(order[3], requests=4, load=100)
    assert crowd.chosen() == (order[3], "spill_lightest")


def test_a_heavier_replica_has_a_wider_bound() -> None:
    """20,100 tokens on a weight of 4 are 5,025 each: 12,562 for a weight of 2 and 6,281 for 1, at most."""
    order = rank(ADAPTER.adapter_id, {"r0": 2.0, "r1": 1.0, "r2": 1.0})
    for load, expected in ((12_400, "r0"), (12_500, None)):
        crowd = Hall()
        crowd.fleet.put_owner_count(POOL, samples.owner_count(owners=order.index("r0") + 1))
        crowd.seat("r0", weight=2.0, requests=8, load=load, tier="gpu")
        for name in ("r1", "r2"):
            crowd.seat(name, requests=8, load=(20_000 - load) // 2)
        assert (crowd.chosen()[0] == "r0") is (expected == "r0")


def test_when_everybody_is_overloaded_it_is_the_least_loaded() -> None:
    small = hall({"requests": 8, "load": 20}, {"requests": 8, "load": 10}, {"requests": 8, "load": 30})
    assert small.chosen(tokens=1_000) == (SECOND, "overloaded")


def test_a_single_replica_is_never_too_full() -> None:
    lonely = Hall()
    lonely.seat("r0", requests=80, load=10**6)
    assert lonely.chosen()[0] == "r0"


def test_base_requests_go_where_least_is_going_on() -> None:
    assert hall({"load": 5}, {"load": 4}, {"load": 6}).chosen(None) == (SECOND, "base")


def test_a_heavier_replica_may_carry_more() -> None:
    uneven = Hall()
    uneven.seat("r0", load=50)
    uneven.seat("r1", load=80, weight=2.0)
    assert uneven.chosen(None)[0] == "r1"


def test_c41_when_nobody_can_the_reason_names_everyone() -> None:
    nobody = hall({}, {"draining": True}, {"ready": False, "reason": "it starts"}).refused(tried=(FIRST,))
    assert f"{FIRST}: already tried" in nobody.reason
    assert f"{SECOND}: it drains" in nobody.reason
    assert f"{THIRD}: it is not ready: it starts" in nobody.reason
    empty = Hall().refused()
    assert empty.reason == "No replica serves this model's pool at the moment."
    assert (empty.may_change, empty.code) == (True, "no_replica")


def test_waiting_makes_sense_as_long_as_somebody_was_not_tried() -> None:
    draining = hall({"draining": True}, {}, {})
    assert draining.refused(tried=(SECOND, THIRD)).may_change
    assert not draining.refused(tried=(FIRST, SECOND, THIRD)).may_change


def test_the_margin_grows_with_the_request() -> None:
    uneven = hall({}, {"tier": "gpu", "load": 1_400})
    assert uneven.chosen() == (FIRST, "margin")
    assert uneven.chosen(tokens=1_000) == (SECOND, "resident")


def test_a_thousand_decisions_between_two_reports_spread() -> None:
    """No herd: what was sent counts at once, for the base model as for an adapter with more than one owner."""
    for adapter, owners in ((None, 2), (ADAPTER, 10)):
        crowd = Hall(RoutingPolicy(margin_tokens=500))
        for index in range(10):
            crowd.seat(f"r{index}", max_rows=32, tier="gpu")
        crowd.fleet.put_owner_count(POOL, samples.owner_count(owners=owners))
        sent = Counter[str]()
        for number in range(1_000):
            replica_id, _ = crowd.chosen(adapter)
            crowd.fleet.sends(replica_id).sent(f"q{number}", 100)
            sent[replica_id] += 1
        assert set(sent.values()) == {100}


def test_a_herd_for_one_cold_adapter_stays_within_the_bound() -> None:
    crowd = Hall()
    for index in range(10):
        crowd.seat(f"r{index}", max_rows=32)
    for number in range(1_000):
        replica_id, rule = crowd.chosen()
        crowd.fleet.sends(replica_id).sent(f"q{number}", 100)
        loads = [seat.load_tokens for seat in crowd.fleet.pools((POOL,), 0.0)[0].usable]
        if number > 0.7 * 320 and rule != "overloaded":
            assert crowd.fleet.sends(replica_id).tokens <= 1.25 * sum(loads) / len(loads)
    assert max(loads) <= 1.25 * 10_000


def test_by_chance_every_replica_has_its_share_of_the_draws() -> None:
    fair = hall({"tier": "gpu"}, {"draining": True}, strategy="random")
    draws = [fair.chosen(draw=number / 100)[0] for number in range(100)]
    assert Counter(draws) == {FIRST: 50, THIRD: 50}
    assert {fair.ask(draw=0.999999).rule} == {"random"}  # type: ignore[union-attr]


@pytest.mark.parametrize("adapter", [ADAPTER, None])
def test_in_turn_each_replica_gets_one(adapter: AdapterKey | None) -> None:
    fair = hall({"tier": "gpu"}, {}, strategy="round_robin")
    asked = []
    for number in range(9):
        replica_id, rule = fair.chosen(adapter)
        assert rule == "round_robin"
        fair.fleet.sends(replica_id).sent(f"q{number}", 100)
        asked.append(replica_id)
    assert asked == [*asked[:3]] * 3
    assert set(asked) == {"r0", "r1", "r2"}


def test_least_loaded_looks_at_no_adapter() -> None:
    assert hall({"tier": "gpu", "load": 2}, {"load": 1}, {"load": 3}, strategy="least_loaded").chosen() == (
        SECOND,
        "least_loaded",
    )


@pytest.mark.parametrize("strategy", ["random", "round_robin", "least_loaded", "affinity"])
def test_no_strategy_passes_the_bound(strategy: str) -> None:
    full = {"requests": 8, "load": 12_000}
    crowd = hall(full, full, {"requests": 6, "load": 2_000}, strategy=strategy)
    assert {crowd.chosen(draw=draw)[0] for draw in (0.0, 0.4, 0.9)} == {THIRD}
    tight = hall(full, full, {"requests": 6, "load": 11_000}, strategy=strategy)
    assert tight.chosen(tokens=12_000, draw=0.9) == (THIRD, "overloaded")


def test_the_order_of_the_members_means_nothing() -> None:
    choices = set()
    for order in itertools.permutations(("r0", "r1", "r2")):
        made = Hall()
        for name in order:
            made.seat(name, load=7)
        choices.add((made.chosen(), made.chosen(None)))
    assert len(choices) == 1


def with_merged(others: Hall, name: str = "m0", **facts: Any) -> Hall:
    others.seat(name, pool_id=MERGED, **{"tier": "gpu", **facts})
    return others


def test_a_replica_with_the_adapter_merged_in_goes_first() -> None:
    choice = with_merged(hall({"tier": "gpu"}, {}), load=90_000, requests=7).ask()
    assert choice == Choice(
        replica_id="m0", pool_id=MERGED, incarnation="m0-1", reason="this replica has the adapter merged in",
        rule="merged",
    )  # fmt: skip


def test_of_two_merged_replicas_the_lighter_one_with_a_free_row() -> None:
    for full, expected in ((1, "m0"), (8, "m1")):
        two = with_merged(with_merged(Hall(), load=1, requests=full), "m1", load=5)
        assert two.chosen() == (expected, "merged")


def test_without_a_merged_replica_that_can_take_it_owners_are_asked_as_ever() -> None:
    for gone in ({"draining": True}, {"requests": 8}):
        assert with_merged(hall({"tier": "gpu"}, {}), **gone).chosen() == (FIRST, "resident")
    assert with_merged(hall({"tier": "gpu"}, {})).chosen(tried=("m0",)) == (FIRST, "resident")


def test_another_adapter_with_the_same_bytes_is_not_asked_of_a_merged_replica() -> None:
    assert with_merged(hall({"tier": "gpu"}, {}), tier="remote").chosen() == (FIRST, "resident")
    away = {"draining": True}
    nobody = with_merged(hall(away, away, away), tier="remote").refused()
    assert "m0" not in nobody.reason


def test_a_full_merged_replica_is_better_than_none() -> None:
    away = {"draining": True}
    choice = with_merged(hall(away, away, away), requests=8).ask()
    assert isinstance(choice, Choice)
    assert (choice.replica_id, choice.pool_id, choice.rule) == ("m0", MERGED, "merged_full")
    assert "nobody else" in choice.reason


def test_when_nobody_can_take_it_the_reason_names_merged_replicas_too() -> None:
    away = {"draining": True}
    nobody = with_merged(hall(away, away, away), draining=True).refused()
    assert "m0: it drains" in nobody.reason
    assert nobody.may_change


def test_base_requests_look_at_all_their_pools() -> None:
    wide = POOL.replace("r16", "r64")
    two = hall({"load": 5}, {"load": 4}, {"load": 6})
    two.seat("w0", pool_id=wide, load=3)
    question = Question(adapter=None, pool_ids=(POOL, wide), tokens=100)
    choice = route(two.fleet, question, two.policy, 0.0, 0.0)
    assert isinstance(choice, Choice)
    assert (choice.replica_id, choice.pool_id, choice.rule) == ("w0", wide, "base")


def test_every_rule_says_something() -> None:
    assert all(RULES.values())


def test_one_decision_in_so_many_is_sampled_wherever_the_draws_come_from() -> None:
    draws = [number / 100_000 for number in range(100_000)]
    assert sum(is_sampled(draw, 100) for draw in draws) == pytest.approx(1_000, rel=0.05)
    assert sum(is_sampled(draw, 100) for draw in draws[:10_000]) == pytest.approx(100, rel=0.2)
    assert all(is_sampled(draw, 1) for draw in draws)
    assert not any(is_sampled(draw, 0) for draw in draws)
