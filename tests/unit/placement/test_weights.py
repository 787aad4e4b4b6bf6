"""Weights: what a replica has least of decides, an operator's word is taken, and nothing moves for noise."""

from __future__ import annotations

from typing import Any

import msgspec

from services.placement.core.membership import MembershipPolicy, Seen, Standing, judge, observe
from services.placement.core.weights import Weighed, WeightPolicy, applied, recall, weigh
from shared.messages.desired import Membership
from tests.simulation.speakers import MIB, report
from tests.unit.placement.test_plan import member

POLICY = WeightPolicy()
USUAL = {"slots": 8, "ram_budget_bytes": 1024 * MIB, "capacity_tokens_per_s": 640.0}


def heard(**replicas: dict[str, Any]) -> dict[str, Seen]:
    return {name: observe(None, report(name, **{**USUAL, **said}), 0.0) for name, said in replicas.items()}


def judged(seen: dict[str, Seen]) -> dict[str, Standing]:
    return {name: judge(each, 0.0, MembershipPolicy(), drained=False, rank_class=16) for name, each in seen.items()}


def weights(before: dict[str, Weighed], now_s: float, **replicas: dict[str, Any]) -> dict[str, float]:
    seen = heard(**replicas)
    standings = judged(seen)
    found = applied(standings, seen, weigh(before, standings, seen, now_s, POLICY))
    return {name: standing.member.weight for name, standing in found.items()}


def test_c70_what_a_replica_has_least_of_decides() -> None:
    found = weights(
        {}, 0.0, a={}, b={}, c={}, few={"slots": 4}, poor={"ram_budget_bytes": 256 * MIB},
        fast={"slots": 32, "ram_budget_bytes": 4096 * MIB, "capacity_tokens_per_s": 1280.0},
    )  # fmt: skip
    assert found == {"a": 1.0, "b": 1.0, "c": 1.0, "few": 0.5, "poor": 0.25, "fast": 2.0}


def test_what_is_not_known_yet_is_left_out_and_no_replica_gets_everything() -> None:
    assert weights({}, 0.0, a={}, b={}, c={"capacity_tokens_per_s": 0.0}) == {"a": 1.0, "b": 1.0, "c": 1.0}
    huge = {"slots": 800, "ram_budget_bytes": 1 << 40, "capacity_tokens_per_s": 1e6}
    assert weights({}, 0.0, a={}, b={}, c=huge)["c"] == 4.0


def test_an_operators_word_is_taken_as_it_is_and_counts_for_no_median() -> None:
    assert weights({}, 0.0, a={}, b={}, c={"weight": 3.0, "slots": 1}) == {"a": 1.0, "b": 1.0, "c": 3.0}


def test_another_weight_is_taken_only_after_the_hold() -> None:
    seen = heard(a={}, b={}, c={"capacity_tokens_per_s": 300.0})
    standings = judged(seen)
    before = {name: Weighed(0) for name in seen}
    for now_s, step in ((0.0, 0), (59.0, 0), (60.0, -2)):
        before = weigh(before, standings, seen, now_s, POLICY)
        assert before["c"].step == step
    noisy = heard(a={}, b={}, c={"capacity_tokens_per_s": 400.0})
    assert weigh(before, judged(noisy), noisy, 200.0, POLICY)["c"] == Weighed(-2)


def test_what_an_earlier_placement_had_published_is_where_the_next_begins() -> None:
    weighed = {"a": 1.0, "b": 2.0**0.5, "c": 0.25, "gone": 0.0}
    members = tuple(msgspec.structs.replace(member(name), weight=weight) for name, weight in weighed.items())
    published = Membership(pool_id="pool", epoch=1, revision=1, members=members)
    assert recall([published]) == {"a": Weighed(0), "b": Weighed(1), "c": Weighed(-4)}
