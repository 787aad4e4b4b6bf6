"""Needs: owners for the traffic, up at once, down slowly, and never to and fro."""

from __future__ import annotations

import itertools
import random

import pytest

from services.placement.core.membership import observe
from services.placement.core.needs import Need, NeedPolicy, Needs, least_slots, needed, recall, share_tokens_per_s
from services.placement.core.rates import Rate
from tests.simulation.speakers import report
from tests.unit.placement.test_plan import member

POLICY = NeedPolicy(target_share=0.7, hold_s=60.0)
SHARE = 448.0


def after(before: Needs, now_s: float, tokens_per_s: float) -> dict[str, Need]:
    return needed(before, {"a": Rate(tokens_per_s, 1.0)}, SHARE, now_s, POLICY)


def owners(needs: Needs) -> int:
    return needs["a"].owners if "a" in needs else 1


@pytest.mark.parametrize(
    ("rate", "count"), [(0.0, 1), (448.0, 1), (449.0, 2), (1_344.0, 3), (1_345.0, 4), (2_000.0, 6)]
)
def test_owners_are_the_step_above_the_rate_over_the_share_and_come_at_once(rate: float, count: int) -> None:
    assert owners(after({}, 0.0, rate)) == count


def test_they_go_step_by_step_each_after_it_would_have_been_enough_for_the_hold() -> None:
    needs = after({}, 0.0, 2_000.0)
    seen = []
    for second in range(1, 250):
        needs = after(needs, float(second), 10.0)
        seen.append(owners(needs))
    assert [seen.index(count) + 1 for count in (4, 3, 2, 1)] == [61, 121, 181, 241]


def test_a_moment_of_need_begins_the_hold_anew() -> None:
    needs = after(after({}, 0.0, 1_000.0), 1.0, 10.0)
    needs = after(needs, 55.0, 900.0)
    assert owners(after(needs, 62.0, 10.0)) == 3


@pytest.mark.parametrize(("share_of_three", "count"), [(0.95, 4), (0.89, 3)])
def test_one_fewer_must_have_something_to_spare(share_of_three: float, count: int) -> None:
    needs = after({}, 0.0, 3.5 * SHARE)
    for second in range(1, 100):
        needs = after(needs, float(second), share_of_three * 3 * SHARE)
    assert owners(needs) == count


@pytest.mark.parametrize("seed", range(5))
def test_noise_around_a_threshold_moves_nothing_after_the_first_time(seed: int) -> None:
    draw, needs, seen = random.Random(seed), {}, []
    for second in range(1_000):
        needs = after(needs, float(second), draw.gauss(3 * SHARE, 40.0))
        seen.append(owners(needs))
    assert set(seen[10:]) == {4}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shares", [2.5, 5.7, 11.5])
def test_the_noise_of_single_answers_hardly_moves_anything(shares: float, seed: int) -> None:
    """A customer's answers of 250 tokens come by chance; its rate is that of a memory of four seconds, as in life."""
    draw, needs, seen, rate = random.Random(seed), {}, [], shares * SHARE
    for second in range(1_200):
        answers = sum(draw.random() < shares * SHARE / 250 / 100 for _ in range(100))
        rate += (250.0 * answers - rate) * (1.0 - 2 ** (-1 / 4))
        needs = needed(needs, {"a": Rate(rate, 1.0)}, SHARE, float(second), NeedPolicy(target_share=0.7))
        seen.append(owners(needs))
    moves = sum(before != count for before, count in itertools.pairwise(seen[300:]))
    assert moves <= 2
    assert shares <= seen[-1] <= 2 * shares


def test_how_busy_one_was_is_forgotten_with_the_count_that_it_had_then() -> None:
    needs: Needs = {"a": Need(4, heat=9)}
    for second in range(60):
        needs = after(needs, float(second), 2.5 * SHARE)
    assert needs["a"] == Need(4, heat=9, less_since_s=0.0)
    assert after(needs, 60.0, 2.5 * SHARE)["a"] == Need(3, less_since_s=60.0)


def test_counts_of_every_step_come_up_and_go_down_in_their_order() -> None:
    up = [owners(after({}, 0.0, SHARE * shares)) for shares in range(1, 33)]
    steps = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert up == [min(step for step in steps if step >= shares) for shares in range(1, 33)]
    needs, seen = after({}, 0.0, 32 * SHARE), []
    for second in range(1, 600):
        needs = after(needs, float(second), 0.0)
        seen.append(owners(needs))
    assert list(dict.fromkeys(seen)) == steps[::-1]


def test_what_an_earlier_placement_had_given_is_kept_for_a_hold() -> None:
    needs = recall({"a": 4}, 10.0)
    assert owners(after(needs, 60.0, 0.0)) == 4
    assert owners(after(needs, 70.0, 0.0)) == 3


def test_the_share_is_of_what_the_middle_replica_can_do() -> None:
    members = {name: member(name) for name in ("slow", "middle", "fast", "silent")}
    capacities = {"slow": 100.0, "middle": 600.0, "fast": 5_000.0, "silent": 0.0}
    seen = {name: observe(None, report(name, capacity_tokens_per_s=each), 0.0) for name, each in capacities.items()}
    assert share_tokens_per_s(members, seen, POLICY) == pytest.approx(0.7 * 600.0)
    assert share_tokens_per_s({"silent": members["silent"]}, seen, POLICY) == pytest.approx(0.7 * 640.0)


def test_where_slots_are_scarce_fewer_owners_must_do() -> None:
    policy = NeedPolicy(target_share=0.1, slot_share=0.7)
    assert [least_slots(owners, policy) for owners in (1, 7, 8, 14, 15)] == [1, 1, 2, 2, 3]
    assert least_slots(5, NeedPolicy(target_share=0.9, slot_share=0.7)) == 5
