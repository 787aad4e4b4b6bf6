"""Who is paused, for whom, and when not."""

from __future__ import annotations

from typing import Any

from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_view import Dispatch, DispatchView, Share
from tests.unit.replica_worker.test_dispatch import POLICY, decide, key, loaded, table_of, waiting

RUNNING = {0: frozenset({"a"}), 1: frozenset({"b"})}


def decide_busy(*requests: Any, counters: dict[str, float] | None = None, **changes: Any) -> Dispatch:
    """Two slots, in which `a` and `b` have run for seconds; their customers have had 300 and 400 tokens."""
    counted = {"base": 0.0, "c": 0.0, "a": 300.0, "b": 400.0, **(counters or {})}
    shares = {tenant: Share(counted.get(tenant, 0.0), 1.0) for tenant in {*counted, *(r.tenant_id for r in requests)}}
    given = {"now_s": 10.0, "free_rows": 0, "loads_in_flight": 0, "pausable": RUNNING, **changes}
    places = table_of(2, "a", "b", running=("a", "b")).places()
    return next_batch(DispatchView(places=places, waiting=requests, shares=shares, **given), POLICY)


def paused(decided: Dispatch) -> list[int]:
    return [pause.slot for pause in decided.pause]


def test_whoever_was_served_most_makes_room() -> None:
    decided = decide_busy(waiting("new", "c"))
    assert paused(decided) == [1]
    assert decided.pause[0].reason == "b makes room for c"
    assert loaded(decided) == [("c", 1)]


def test_a_slot_is_kept_for_its_quantum() -> None:
    assert paused(decide_busy(waiting("new", "c"), now_s=1.2)) == [0]
    assert paused(decide_busy(waiting("new", "c"), now_s=0.2)) == []


def test_those_who_were_paused_leave_others_a_round() -> None:
    again = waiting("again", "c", paused=True, passed_over_since_s=1.0)
    assert paused(decide_busy(again, now_s=1.9)) == [0]
    assert paused(decide_busy(again, now_s=0.9)) == []


def test_a_slot_that_something_is_open_on_is_left_alone() -> None:
    assert paused(decide_busy(waiting("new", "c"), pausable={0: frozenset({"a"})})) == [0]
    assert paused(decide_busy(waiting("new", "c"), pausable={})) == []


def test_nobody_is_paused_for_a_customer_that_has_had_more() -> None:
    rich = {"c": 501.0, "base": 501.0}
    assert paused(decide_busy(waiting("new", "c"), counters=rich)) == []
    assert paused(decide_busy(waiting("new", "c"), counters={"c": 500.0, "base": 500.0})) == [1]
    again = waiting("again", "c", paused=True, passed_over_since_s=9.0)
    assert paused(decide_busy(again, counters={"c": 90_000.0})) == [1], "its answer stands still"


def test_no_more_adapters_are_away_than_there_are_slots() -> None:
    away = [waiting(f"r{at}", f"away-{at}", paused=True, passed_over_since_s=9.5) for at in range(2)]
    decided = decide_busy(waiting("new", "c"), *away)
    assert [load.key for load in decided.load] == [key("away-0"), key("away-1")]
    one = decide_busy(waiting("new", "c"), away[0], loads_in_flight=1)
    assert [load.key for load in one.load] == [key("c")]


def test_a_free_slot_is_taken_before_anybody_is_paused() -> None:
    table = table_of(2, "a", running=("a",))
    decided = decide(table, waiting("new", "c"), rows=0, pausable={0: frozenset({"c"})})
    assert (paused(decided), loaded(decided)) == ([], [("c", 1)])


def test_a_wait_for_a_row_pauses_nobody() -> None:
    decided = decide_busy(waiting("base"), waiting("more", "a"))
    assert paused(decided) == []


def test_an_operation_that_has_waited_too_long_has_the_slot_that_was_closed_for_it() -> None:
    table = table_of(2, "a", "b", running=("a", "b"))
    table.close_only(0)
    given = {"rows": 0, "pausable": RUNNING, "operation_since_s": 9.0, "counters": {"b": 900.0, "c": 900.0}}
    decided = decide(table, waiting("more", "b"), waiting("base", tenant_id="a"), **given)
    assert [pause.reason for pause in decided.pause] == ["a makes room for an operation"]
    assert decided.load == ()
    both = decide(table, waiting("new", "c", tenant_id="b"), waiting("base", tenant_id="a"), **given)
    assert paused(both) == [0, 1], "and nobody else gets it"
    assert loaded(both) == [("c", 1)]
    away = [waiting(f"r{at}", f"away-{at}", tenant_id="a", paused=True) for at in range(2)]
    assert paused(decide(table, *away, **{**given, "pausable": {0: frozenset({"a"})}})) == []


def test_whoever_returns_makes_no_room_where_too_many_are_away_already() -> None:
    """Operations may have taken slots."""
    away = [waiting(f"r{at}", f"away-{at}", paused=True, passed_over_since_s=8.0) for at in range(3)]
    assert paused(decide_busy(*away)) == []


def test_a_slot_that_was_closed_for_another_keeps_its_round_against_those_who_were_paused() -> None:
    table = table_of(2, "a", "b", running=("a", "b"))
    table.close_only(0)
    again = waiting("again", "c", tenant_id="a", paused=True, passed_over_since_s=0.4)
    for now_s, expected in ((0.9, []), (1.5, [0])):
        assert paused(decide(table, again, rows=0, pausable={0: frozenset({"a"})}, now_s=now_s)) == expected


def test_a_closed_slot_is_not_taken_from_those_who_return_to_it() -> None:
    table = table_of(1, "a")
    table.close_only(0)
    again, old = waiting("again", "a", paused=True), waiting("old", "c", passed_over_since_s=5.0)
    assert loaded(decide(table, again, old, rows=0)) == []
    assert loaded(decide(table, waiting("new", "a"), old, rows=0)) == [("c", 0)]
