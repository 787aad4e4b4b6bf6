"""Weights: what a replica has least of decides, an operator's word is taken, and nothing moves for noise."""

from __future__ import annotations

import math
import statistics
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.membership import MembershipPolicy, Seen, Standing, judge, observe
from services.placement.core.weights import Weighed, WeightPolicy, applied, recall, weigh
from shared.hashing import rank
from shared.messages.desired import Membership
from tests.simulation.speakers import MIB, report
from tests.unit.placement.test_plan import member

POLICY = WeightPolicy()
USUAL = {"slots": 8, "ram_budget_bytes": 1024 * MIB, "capacity_tokens_per_s": 640.0}


def heard(**replicas: dict[str, Any]) -> dict[str, Seen]:
    return {name: observe(None, report(name, **{**USUAL, **said}), 0.0) for name, said in replicas.items()}


def judged(seen: dict[str, Seen]) -> dict[str, Standing]:
    return {name: judge(each, 0.0, MembershipPolicy(), drained=False, rank_class=16) for name, each in seen.items()}


def weights(
    before: dict[str, Weighed], now_s: float, policy: WeightPolicy = POLICY, **replicas: dict[str, Any]
) -> dict[str, float]:
    seen = heard(**replicas)
    standings = judged(seen)
    found = applied(standings, seen, weigh(before, standings, seen, now_s, policy))
    return {name: standing.member.weight for name, standing in found.items()}


UNKNOWN = {"capacity_tokens_per_s": 0.0}
KINDS = WeightPolicy(rates={"nvidia h200": 2.0, "nvidia l4": 0.5, "nvidia l40": 0.5})


def kind(name: str, **said: Any) -> dict[str, Any]:
    return {"gpu_kind": name, **UNKNOWN, **said}


def shares(weighed: dict[str, float]) -> dict[str, float]:
    """Of 8,000 adapters, how many each replica owns first."""
    names, count = [f"adapter-{number}" for number in range(8_000)], dict.fromkeys(weighed, 0)
    for name in names:
        count[rank(name, weighed)[0]] += 1
    return {name: owned / len(names) for name, owned in count.items()}


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


def test_two_replicas_of_different_kinds_own_adapters_in_proportion_to_what_these_do() -> None:
    weighed = weights({}, 0.0, KINDS, a=kind("NVIDIA H200"), b=kind("NVIDIA L4"))
    assert weighed == {"a": 1.0, "b": 0.25}
    assert shares(weighed) == {"a": pytest.approx(0.8, abs=0.02), "b": pytest.approx(0.2, abs=0.02)}
    assert weights({}, 0.0, KINDS, a=kind("H200 of somebody"), b=kind("NVIDIA L4")) == {"a": 1.0, "b": 0.5}


def test_a_faster_kind_does_not_make_up_for_slots_and_memory() -> None:
    assert weights({}, 0.0, KINDS, a=kind("", slots=16), b=kind(""), c=kind("NVIDIA H200", slots=2)) == {
        "a": 0.5, "b": 0.5, "c": 0.25,
    }  # fmt: skip


def test_among_kinds_a_measured_rate_comes_before_that_of_the_kind() -> None:
    measured = {"gpu_kind": "NVIDIA L4", "capacity_tokens_per_s": 600.0}
    found = weights({}, 0.0, KINDS, a=kind("NVIDIA H200", capacity_tokens_per_s=1_200.0), b=measured, c=kind(""))
    assert found == {"a": 1.0, "b": 0.5, "c": 0.5**0.5}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "slots": st.sampled_from([0, 1, 4, 8, 100]),
                "ram_budget_bytes": st.sampled_from([256 * MIB, 1024 * MIB, 8192 * MIB]),
                "capacity_tokens_per_s": st.one_of(st.just(0.0), st.floats(1.0, 5_000.0)),
            }
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([[""], ["NVIDIA L4"], ["NVIDIA L4", "NVIDIA L40"]]),
)
def test_a_fleet_whose_kinds_do_alike_is_weighed_as_if_nothing_were_known_of_kinds(
    replicas: list[dict[str, Any]], kinds: list[str]
) -> None:
    """The formula that there was before kinds were known, written out."""
    seen = {f"r{at}": {**said, "gpu_kind": kinds[at % len(kinds)]} for at, said in enumerate(replicas)}
    columns = [[float(said[name]) for said in replicas] for name in replicas[0]]
    medians = [statistics.median([value for value in column if value] or [0.0]) for column in columns]
    for at, name in enumerate(seen):
        ratios = [column[at] / middle for column, middle in zip(columns, medians, strict=True) if column[at] and middle]
        level = min(4.0, max(-4.0, 2 * math.log2(min(ratios))))
        assert weights({}, 0.0, KINDS, **seen)[name] == math.exp2(round(level) / 2)
