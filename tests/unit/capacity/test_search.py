"""The smallest fleet is found with few attempts, and a lucky small one is not believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.capacity.search import Bounds, Found, smallest
from loadtest.plots.planning import PlanPoint


class Fleets:
    """Sizes in `bad` miss the objective; counts what was tried."""

    def __init__(self, bad: set[int]) -> None:
        self._bad = bad
        self.tried: list[int] = []

    def attempt(self, replicas: int) -> PlanPoint:
        self.tried.append(replicas)
        return PlanPoint(
            replicas=replicas,
            ttft_p50_s=0.1,
            ttft_p95_s=2.0 if replicas in self._bad else 0.5,
            ttft_p99_s=3.0,
            worst_customer_p95_s=2.0,
            gpu_hit=0.99,
            gpu_or_ram_hit=0.999,
            loads_per_1000=10.0,
            max_over_mean=1.1,
            failed_share=0.0,
            usd_per_hour=2.5 * replicas,
            misses=f"p95 of {replicas}" if replicas in self._bad else "",
        )


def search(bad: set[int], **bounds: int) -> tuple[Found, Fleets]:
    fleets = Fleets(bad)
    return smallest(fleets.attempt, Bounds(**{"low": 20, "expected": 26, "high": 52, **bounds})), fleets


@pytest.mark.parametrize("edge", [21, 22, 26, 27, 40, 52])
def test_the_first_size_that_meets_it(edge: int) -> None:
    found, _ = search(set(range(edge)))
    assert found.smallest == edge
    assert found.why_not_fewer == f"{edge - 1} replicas do not: p95 of {edge - 1}"


def test_nothing_below_what_the_traffic_takes_is_tried() -> None:
    found, fleets = search(set())
    assert found.smallest == 20
    assert found.why_not_fewer == "19 replicas could not carry the traffic, even without any noise in it"
    assert min(fleets.tried) == 20


def test_nobody_meets_it() -> None:
    found, _ = search(set(range(100)))
    assert found.smallest is None
    assert found.why_not_fewer == "52 replicas do not: p95 of 52"


def test_a_lucky_small_fleet_is_not_believed() -> None:
    found, _ = search({20, 21, 23})
    assert found.smallest == 24
    assert found.why_not_fewer == "23 replicas do not: p95 of 23"


def test_neighbours_are_tried_for_the_picture() -> None:
    found, _ = search(set(range(22)), beside=2)
    assert {20, 21, 22, 23, 26} <= {point.replicas for point in found.points}
    assert [point.replicas for point in found.points] == sorted({point.replicas for point in found.points})


def test_where_only_smaller_fleets_meet_it_that_is_said() -> None:
    found, fleets = search({20, 21, *range(23, 60)}, expected=22)
    assert found.smallest == 22
    assert found.why_not_fewer.startswith(
        "21 replicas do not: p95 of 21; nor do 23, though they are more: p95 of 23; nor do 24, though they are more"
    )
    assert len(fleets.tried) < 12


@given(bad=st.sets(st.integers(1, 30)), expected=st.integers(1, 30), beside=st.integers(0, 3))
def test_whatever_is_found_holds_for_all_that_was_tried(bad: set[int], expected: int, beside: int) -> None:
    found, fleets = search(bad, low=1, expected=expected, high=30, beside=beside)
    assert len(fleets.tried) == len(set(fleets.tried))
    if found.smallest is None:
        assert all(point.misses for point in found.points)
        return
    assert found.smallest not in bad
    if found.smallest > 1:
        assert found.smallest - 1 in bad & set(fleets.tried)
    for point in found.points:
        if point.replicas > found.smallest and point.misses:
            assert point.misses in found.why_not_fewer


def test_a_large_fleet_takes_few_attempts() -> None:
    _, fleets = search(set(range(400)), low=1, expected=600, high=1200, beside=0)
    assert len(fleets.tried) < 20
