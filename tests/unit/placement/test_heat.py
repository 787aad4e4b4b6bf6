"""Heat: what is busy is known by its class, noise changes nothing, and nobody who was busy is forgotten at once."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from services.placement.core.heat import HeatPolicy, Heats, PoolHeat, fold, recall
from services.placement.core.shards import split
from shared.contracts.catalog import ASSIGNMENT, TRAFFIC
from shared.contracts.codec import decode, encode
from shared.messages.desired import AssignedAdapter
from shared.messages.usage import PoolTraffic

POLICY = HeatPolicy(floor_per_s=0.01, margin=0.5, share=0.1)
AT_ONCE = HeatPolicy(floor_per_s=0.01, margin=0.5, share=1.0)
"""Averages nothing."""


def said(at_s: float, **rates: float) -> list[PoolTraffic]:
    message = PoolTraffic(pool_id="pool", at_s=at_s, requests_per_s=rates)
    return [decode(TRAFFIC, encode(TRAFFIC, message))]


def written(**heats: int) -> dict[str, PoolHeat]:
    """By an earlier placement."""
    adapters = [
        AssignedAdapter(adapter_id=name, digest="d", role="owner", tier="ram", heat=heat)
        for name, heat in heats.items()
    ]
    shards = split("r1", "pool", 1, adapters).values()
    return recall([decode(ASSIGNMENT, encode(ASSIGNMENT, each)) for each in shards], POLICY)


def by_adapter(heats: Heats) -> dict[str, int]:
    return dict(heats["pool"].classes) if heats else {}


def test_the_busier_is_the_hotter_and_what_is_rare_is_cold() -> None:
    heats = by_adapter(fold({}, said(1.0, rare=0.009, some=0.02, twice=0.04, much=5.2, top=100.0), POLICY))
    assert heats == {"some": 2, "twice": 3, "much": 10, "top": 14}


@given(heat=st.integers(1, 20), within=st.floats(-0.49, 1.49))
def test_a_rate_within_the_margin_of_its_class_changes_nothing(heat: int, within: float) -> None:
    rate = 0.01 * 2.0 ** (heat - 1 + within)
    assert by_adapter(fold(written(a=heat), said(1.0, a=rate), AT_ONCE)) == {"a": heat}


def test_what_becomes_busy_is_hot_with_the_next_message_and_what_was_busy_cools_slowly() -> None:
    heats = fold(fold({}, said(1.0, a=0.02), POLICY), said(2.0, a=10.0), POLICY)
    assert by_adapter(heats) == {"a": 7}, "a tenth of the way there, which is a few powers of two"
    cooled = []
    for step in range(80):
        heats = fold(heats, said(3.0 + step), POLICY)
        cooled.append(by_adapter(heats).get("a", 0))
    assert cooled == sorted(cooled, reverse=True)
    assert set(cooled) == set(range(8)), "class by class, down to nothing"
    assert heats["pool"].rates_per_s == {}


def test_the_same_message_again_cools_nothing_and_a_pool_that_says_nothing_stays() -> None:
    heats = fold(written(a=5), said(1.0), POLICY)
    assert fold(heats, said(1.0), POLICY) == heats
    assert fold(heats, [], POLICY) == heats


def test_a_new_placement_recalls_what_the_one_before_had_written() -> None:
    assert by_adapter(written(hot=7, cold=0)) == {"hot": 7}
    heats = written(hot=7)
    for step in range(20):
        heats = fold(heats, said(step + 1.0, hot=0.01 * 2.0**7.2), POLICY)
    assert by_adapter(heats) == {"hot": 7}, "which is 8 to whoever knows nothing"
    assert by_adapter(fold({}, said(1.0, hot=0.01 * 2.0**7.2), POLICY)) == {"hot": 8}


def changes_a_refresh(policy: HeatPolicy) -> float:
    """Fleet A's traffic, counted in windows of five minutes: requests come at random, rates do not change."""
    draw, window_s, adapters, refreshes = random.Random(1), 300.0, 500, 50
    rates = [40.0 / (9.1 * rank) for rank in range(1, adapters + 1)]
    heats: dict[str, PoolHeat] = {}
    changed = 0
    for at in range(refreshes):
        counted = {
            f"a{rank}": max(0.0, draw.gauss(rate * window_s, (rate * window_s) ** 0.5)) / window_s
            for rank, rate in enumerate(rates)
        }
        before, heats = by_adapter(heats), fold(heats, said(at + 1.0, **counted), policy)
        after = by_adapter(heats)
        changed += sum(before.get(name, 0) != after.get(name, 0) for name in before.keys() | after.keys()) * (at > 0)
    return changed / (refreshes - 1)


def test_traffic_that_does_not_change_hardly_changes_an_assignment() -> None:
    steady = changes_a_refresh(POLICY)
    assert steady < 8, f"{steady} of 500 heats change with every refresh"
    assert changes_a_refresh(HeatPolicy(margin=0.0, share=1.0)) > 5 * steady
