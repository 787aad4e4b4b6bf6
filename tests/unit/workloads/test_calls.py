"""A shape's calls are the same every time, in order, and spread as the shape says.

Bounds are about five standard errors of what a seed could draw: a wrong distribution fails, and luck does not.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from loadtest.workloads.call import Call
from loadtest.workloads.calls import calls, moves
from loadtest.workloads.popularity import shares
from loadtest.workloads.shape import (
    Bursts,
    Churn,
    Day,
    Drift,
    Fixed,
    Geometric,
    Lengths,
    LogNormal,
    OneHot,
    Recorded,
    Rise,
    Steady,
    Surge,
    TrafficShape,
    Uniform,
    Zipf,
)

PLAIN = TrafficShape(customers=200, rate_per_s=50, for_s=400, seed=7)


def changed(**parts: object) -> TrafficShape:
    return msgspec.structs.replace(PLAIN, **parts)


ALL_AT_ONCE = changed(
    arrivals=Bursts(cv=3.0),
    lengths=Lengths(prompt=LogNormal(mean=750), output=Geometric(mean=250)),
    day=Day(length_s=400, peak_at_s=100),
    surges=(Surge(at_s=50, for_s=20, factor=2.0),),
    drift=Drift(every_s=60, step=3),
    churn=Churn(moves_per_s=0.5),
    rises=(Rise(tenant=40, at_s=200, more_per_s=8.0),),
    allowance=2.0,
    streamed=0.5,
)


def gaps(shape: TrafficShape) -> np.ndarray:
    return np.diff([call.at_s for call in calls(shape)])


def during(shape: TrafficShape, begin_s: float, end_s: float) -> list[Call]:
    return [call for call in calls(shape) if begin_s <= call.at_s < end_s]


def test_the_same_shape_gives_the_same_calls() -> None:
    assert list(calls(ALL_AT_ONCE)) == list(calls(ALL_AT_ONCE))


def test_another_seed_gives_others() -> None:
    assert [call.at_s for call in calls(changed(seed=8))] != [call.at_s for call in calls(PLAIN)]


def test_other_lengths_leave_who_calls_when_as_it_was() -> None:
    other = changed(lengths=Lengths(prompt=LogNormal(mean=90)))
    assert [(call.at_s, call.tenant) for call in calls(other)] == [(call.at_s, call.tenant) for call in calls(PLAIN)]


def test_calls_come_in_order_within_the_time_asked_for() -> None:
    times = [call.at_s for call in calls(ALL_AT_ONCE)]
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert times[0] >= 0
    assert times[-1] < ALL_AT_ONCE.for_s


def test_every_call_allows_what_it_will_produce() -> None:
    assert all(call.max_tokens >= call.output_tokens >= 1 and call.prompt_tokens >= 1 for call in calls(ALL_AT_ONCE))


@pytest.mark.parametrize("popularity", [Zipf(s=0.9), Zipf(s=1.5), Uniform(), OneHot(share=0.4)])
def test_customers_call_as_often_as_their_popularity_says(popularity: Zipf | Uniform | OneHot) -> None:
    shape = changed(popularity=popularity)
    counts = np.bincount([call.tenant for call in calls(shape)], minlength=200)
    expected = shares(popularity, 200) * counts.sum()
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - 199) < 5 * (2 * 199) ** 0.5


def test_zipf_is_what_it_is_called() -> None:
    assert shares(Zipf(s=1.0), 5000)[0] == pytest.approx(1 / 9.0945, rel=1e-4)
    assert shares(Zipf(s=1.2), 100)[9] / shares(Zipf(s=1.2), 100)[0] == pytest.approx(10**-1.2)


@pytest.mark.parametrize("cv", [2.0, 4.0, 8.0])
def test_bursts_have_the_variation_asked_for(cv: float) -> None:
    found = gaps(changed(arrivals=Bursts(cv=cv), for_s=20_000))
    assert found.std() / found.mean() == pytest.approx(cv, rel=0.05)
    assert 1 / found.mean() == pytest.approx(50, rel=5 * cv / len(found) ** 0.5)


def test_poisson_varies_as_much_as_its_mean() -> None:
    found = gaps(changed(for_s=4_000))
    assert found.std() / found.mean() == pytest.approx(1.0, abs=0.02)
    assert len(found) == pytest.approx(200_000, abs=5 * 200_000**0.5)


def test_steady_calls_keep_their_distance() -> None:
    assert gaps(changed(arrivals=Steady())) == pytest.approx(0.02)


def test_recorded_gaps_come_in_their_order_and_again() -> None:
    found = gaps(changed(arrivals=Recorded(gaps=(0.5, 1.0, 1.5)), for_s=10))
    assert found[:6] == pytest.approx([0.02, 0.03, 0.01, 0.02, 0.03, 0.01])


def test_a_day_has_its_peak_and_its_trough() -> None:
    shape = changed(day=Day(trough=0.2, peak_at_s=1000, length_s=4000), for_s=4000)
    peak, trough = len(during(shape, 900, 1100)), len(during(shape, 2900, 3100))
    assert peak == pytest.approx(200 * 50, rel=0.05)
    assert trough == pytest.approx(200 * 50 * 0.2, rel=0.1)


def test_a_surge_is_everybodys() -> None:
    shape = changed(surges=(Surge(at_s=100, for_s=100, factor=3.0),))
    assert len(during(shape, 100, 200)) == pytest.approx(15_000, rel=0.04)
    assert len(during(shape, 200, 300)) == pytest.approx(5_000, rel=0.07)


def test_a_rising_customer_calls_on_top_of_all_others() -> None:
    shape = changed(rises=(Rise(tenant=40, at_s=100, more_per_s=8.0, until_s=300),))
    its_share = 50 * shares(Zipf(), 200)[40]
    risen, before = during(shape, 100, 300), during(shape, 0, 100)
    assert sum(call.tenant == 40 for call in risen) / 200 == pytest.approx(8 + its_share, rel=0.12)
    assert sum(call.tenant != 40 for call in risen) / 200 == pytest.approx(50 - its_share, rel=0.05)
    assert sum(call.tenant == 40 for call in before) / 100 == pytest.approx(its_share, abs=0.3)


def test_ranks_rotate() -> None:
    shape = changed(drift=Drift(every_s=100, step=3))
    tops = [Counter(call.tenant for call in during(shape, at_s, at_s + 100)).most_common(1)[0][0] for at_s in (0, 100)]
    assert tops == [0, 3]


def test_calls_name_the_version_that_the_alias_has_at_their_moment() -> None:
    shape = changed(churn=Churn(moves_per_s=2.0))
    steps = list(moves(shape))
    assert len(steps) == pytest.approx(800, abs=5 * 800**0.5)
    named = {tenant: tenant for tenant in range(200)}
    ahead = iter(steps)
    move = next(ahead)
    for call in calls(shape):
        while move and move.at_s <= call.at_s:
            assert move.previous == named[move.tenant]
            named[move.tenant] = move.adapter
            move = next(ahead, None)  # type: ignore[assignment]
        assert call.adapter == named[call.tenant]


def test_a_version_is_never_named_by_two_numbers_or_two_customers() -> None:
    adapters = [move.adapter for move in moves(changed(churn=Churn(moves_per_s=2.0)))]
    assert len(set(adapters)) == len(adapters)
    assert all(move.adapter % 200 == move.tenant for move in moves(changed(churn=Churn(moves_per_s=2.0))))


@pytest.mark.parametrize(
    ("length", "deviation"),
    [(LogNormal(mean=300, cv=0.8, cap=10**6), 0.8), (Geometric(mean=300, cap=10**6), 1.0), (Fixed(tokens=300), 0.0)],
)
def test_lengths_have_their_mean(length: Fixed | LogNormal | Geometric, deviation: float) -> None:
    found = np.array([call.output_tokens for call in calls(changed(lengths=Lengths(output=length)))])
    assert found.mean() == pytest.approx(300, rel=5 * deviation / len(found) ** 0.5 + 1e-9)
    assert found.std() / found.mean() == pytest.approx(deviation, rel=0.06)


def test_no_length_passes_its_cap() -> None:
    shape = changed(lengths=Lengths(prompt=LogNormal(mean=750, cv=3.0, cap=2000), output=Geometric(mean=250, cap=400)))
    assert max(call.prompt_tokens for call in calls(shape)) == 2000
    assert max(call.output_tokens for call in calls(shape)) == 400


def test_the_share_that_streams() -> None:
    assert np.mean([call.stream for call in calls(changed(streamed=0.3))]) == pytest.approx(0.3, abs=0.02)
    assert all(call.stream for call in calls(PLAIN))
