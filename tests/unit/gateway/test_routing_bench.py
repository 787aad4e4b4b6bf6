"""The measurement of decisions measures decisions of a busy fleet."""

from __future__ import annotations

from loadtest.routing_bench import measure
from loadtest.routing_load import Plan
from services.gateway.core.question import RoutingPolicy

SMALL = Plan(replicas=8, adapters=40, decisions=600, rate=40.0, rows=4, slots=10)


def test_every_decision_is_timed_once_and_the_pool_is_busy_enough_to_spill() -> None:
    timed = list(measure(SMALL, RoutingPolicy(), leaves_at_s=5.0))
    assert len(timed) == SMALL.decisions
    assert all(each.took_us > 0 for each in timed)
    rules = {each.rule for each in timed}
    assert {"resident", "first"} <= rules
    assert any(rule.startswith("spill") for rule in rules)


def test_how_it_is_prepared_changes_no_decision() -> None:
    prepared, unprepared = (
        [(each.at_s, each.rule, each.first) for each in measure(SMALL, RoutingPolicy(), prepared=how)]
        for how in (True, False)
    )
    assert prepared == unprepared
