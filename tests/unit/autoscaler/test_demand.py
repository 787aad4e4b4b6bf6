"""Sums that fade say what is asked for now, and how far that is to be trusted."""

from __future__ import annotations

import math
import random

import pytest

from services.autoscaler.core.demand import (
    DemandPolicy,
    Sums,
    Tally,
    asked_tokens_per_s,
    demand_of,
    heard,
    of_pool,
)
from services.autoscaler.core.load import Demand
from shared.messages.activity import PoolActivity

WINDOWS = DemandPolicy()


def said(requests: int, **more: int) -> Sums:
    return of_pool(PoolActivity(requests=requests, first_tokens=requests, tokens=100 * requests, **more))


def after(counts: list[int], begin_s: float = 0.0, tally: Tally | None = None) -> tuple[Tally, float]:
    now_s = begin_s
    for count in counts:
        tally = heard(tally, said(count), 1.0, now_s, WINDOWS)
        now_s += 1.0
    assert tally is not None
    return tally, now_s


@pytest.mark.parametrize("seconds", [1, 5, 60, 900])
def test_a_steady_rate_is_right_from_the_first_second(seconds: int) -> None:
    tally, now_s = after([10] * seconds)
    demand = demand_of(tally, now_s, WINDOWS)
    assert demand.requests_per_s == pytest.approx(10.0, rel=0.07)
    assert demand.requests_per_s_short == pytest.approx(10.0, rel=0.07)
    assert (demand.tokens_per_request, demand.noise_per_s_short) == (pytest.approx(100.0), pytest.approx(0.0, abs=1e-5))


@pytest.mark.parametrize("passed_s", [0.0, 3.0, 3.1, 40.0, 4_000.0])
def test_what_is_asked_of_one_of_thousands_is_what_the_whole_demand_says(passed_s: float) -> None:
    tally, now_s = after([3, 0, 7, 2])
    demand = demand_of(tally, now_s + passed_s, WINDOWS)
    product = demand.requests_per_s * demand.tokens_per_request
    assert asked_tokens_per_s(tally, now_s + passed_s, WINDOWS) == product
    assert (product > 0.0) == (passed_s < 4_000.0)


def test_a_leap_shows_in_the_short_window_first() -> None:
    tally, now_s = after([30] * 10, *reversed(after([10] * 300)))
    demand = demand_of(tally, now_s, WINDOWS)
    assert demand.requests_per_s_short > 23.0
    assert demand.requests_per_s < 16.0


def test_whoever_falls_silent_asks_for_less_and_less() -> None:
    tally, now_s = after([10] * 60)
    assert demand_of(tally, now_s + 1.0, WINDOWS).requests_per_s_short == pytest.approx(10.0, rel=0.07)
    assert demand_of(tally, now_s + 60.0, WINDOWS).requests_per_s_short < 0.1


def test_what_the_fleet_had_to_refuse_was_asked_for_and_came_too_late() -> None:
    said = of_pool(PoolActivity(requests=10, refused=4, first_tokens=6, late_first_tokens=1, tokens=600))
    demand = demand_of(heard(None, said, 1.0, 0.0, WINDOWS), 0.0, WINDOWS)
    assert demand.requests_per_s == pytest.approx(10.0, rel=0.07)
    assert (demand.tokens_per_request, demand.late_share) == (100.0, 0.5)


def test_a_pool_that_is_rarely_mentioned_was_quiet_in_between() -> None:
    tally: Tally | None = None
    for second in range(0, 600, 10):
        tally = heard(tally, said(1), 1.0, float(second), WINDOWS)
    demand = demand_of(tally, 600.0, WINDOWS)
    assert demand.requests_per_s == pytest.approx(0.1, rel=0.2)
    assert demand.noise_per_s_short == pytest.approx(math.sqrt(0.1 / 16.0), rel=0.15)


def test_before_anybody_said_anything_nothing_is_known() -> None:
    assert demand_of(None, 0.0, WINDOWS) == Demand()


def test_the_noise_is_that_of_the_arrivals_however_many_gateways_share_them() -> None:
    draw = random.Random(3)
    counts = [sum(draw.random() < 0.04 for _ in range(1_000)) for _ in range(600)]
    expected = math.sqrt(40.0 * 0.96 / (2.0 * WINDOWS.short_s))
    tally, now_s = after(counts)
    assert demand_of(tally, now_s, WINDOWS).noise_per_s_short == pytest.approx(expected, rel=0.15)
    over_both = demand_of(tally, now_s, WINDOWS)
    assert over_both.noise_per_s == pytest.approx(
        over_both.noise_per_s_short * math.sqrt(WINDOWS.short_s / WINDOWS.average_s)
    )
    shared: Tally | None = None
    for second, count in enumerate(counts):
        first = sum(draw.random() < 0.5 for _ in range(count))
        for part in (first, count - first):
            shared = heard(shared, said(part), 1.0, float(second), WINDOWS)
    assert demand_of(shared, 600.0, WINDOWS).noise_per_s_short == pytest.approx(expected, rel=0.2)
