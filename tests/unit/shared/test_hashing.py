"""Rendezvous ranking: the same everywhere, proportional to weight, and calm when replicas come and go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.hashing import Field, hashes, rank, top

FLEET = {f"replica-{at}": 1.0 for at in range(26)}
ADAPTERS = [f"acme-{at}" for at in range(5000)]
WEIGHTS = st.dictionaries(st.text(min_size=1, max_size=8), st.floats(0.1, 10.0), min_size=1, max_size=8)


def test_the_order_is_written_down() -> None:
    """Another build, machine or Python must rank as this one does, or two gateways would disagree."""
    weights = {"r1": 1.0, "r2": 2.0, "r3": 0.5, "r4": 1.0}
    assert rank("acme-v1", weights) == ("r2", "r1", "r3", "r4")
    assert rank("acme-v2", weights) == ("r3", "r4", "r2", "r1")
    assert rank("Ωmega.3", weights) == ("r1", "r3", "r2", "r4")


@given(st.text(), WEIGHTS)
def test_every_replica_has_one_place_whatever_the_order_of_telling(adapter_id: str, weights: dict[str, float]) -> None:
    ranked = rank(adapter_id, weights)
    assert sorted(ranked) == sorted(weights)
    assert rank(adapter_id, dict(reversed(weights.items()))) == ranked


@given(st.text(), WEIGHTS)
def test_taking_one_away_leaves_the_order_of_the_others(adapter_id: str, weights: dict[str, float]) -> None:
    ranked = rank(adapter_id, weights)
    for gone in weights:
        rest = {name: weight for name, weight in weights.items() if name != gone}
        assert rank(adapter_id, rest) == tuple(name for name in ranked if name != gone)


def test_nobody_is_chosen_without_weight() -> None:
    assert rank("acme-v1", {"r1": 0.0, "r2": 1.0, "r3": -1.0}) == ("r2",)
    assert rank("acme-v1", {}) == ()


@pytest.mark.parametrize("place", [0, 1])
def test_equal_replicas_own_equal_shares(place: int) -> None:
    shares = Counter(rank(adapter_id, FLEET)[place] for adapter_id in ADAPTERS)
    expected = len(ADAPTERS) / len(FLEET)
    assert set(shares) == set(FLEET)
    assert max(shares.values()) < 1.3 * expected
    assert min(shares.values()) > 0.7 * expected


def test_shares_are_proportional_to_weight() -> None:
    weights = {"small": 1.0, "middle": 2.0, "large": 5.0}
    shares = Counter(rank(adapter_id, weights)[0] for adapter_id in ADAPTERS)
    for name, weight in weights.items():
        assert shares[name] / len(ADAPTERS) == pytest.approx(weight / 8.0, abs=0.02)


def test_a_replica_that_leaves_moves_only_what_it_owned() -> None:
    rest = {name: weight for name, weight in FLEET.items() if name != "replica-7"}
    before = {adapter_id: rank(adapter_id, FLEET)[:2] for adapter_id in ADAPTERS}
    after = {adapter_id: rank(adapter_id, rest)[:2] for adapter_id in ADAPTERS}
    placements = sum(len(set(after[one]) - set(before[one])) for one in ADAPTERS)
    assert all(before[one] == after[one] for one in ADAPTERS if "replica-7" not in before[one])
    assert placements / (2 * len(ADAPTERS)) == pytest.approx(1 / 26, rel=0.15)


def test_a_replica_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    grown = {**FLEET, "replica-new": 1.0}
    before = {adapter_id: set(rank(adapter_id, FLEET)[:2]) for adapter_id in ADAPTERS}
    after = {adapter_id: set(rank(adapter_id, grown)[:2]) for adapter_id in ADAPTERS}
    gained = [after[one] - before[one] for one in ADAPTERS]
    assert set().union(*gained) == {"replica-new"}
    assert sum(map(len, gained)) / (2 * len(ADAPTERS)) == pytest.approx(1 / 27, rel=0.15)


@given(st.lists(st.text(), max_size=20), WEIGHTS, st.integers(1, 5))
def test_all_at_once_are_ranked_as_one_by_one(adapter_ids: list[str], weights: dict[str, float], depth: int) -> None:
    assert top(adapter_ids, weights, depth) == [rank(one, weights)[:depth] for one in adapter_ids]


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.7, 1.0, 1.4, 2.0), (1e-12, 1.0, 1e6)])
def test_in_a_large_fleet_too_where_most_replicas_are_not_looked_at(weights: tuple[float, ...]) -> None:
    fleet = {f"replica-{at}": weights[at % len(weights)] for at in range(300)}
    found = top(ADAPTERS[:1500], fleet, 4)
    assert found == [rank(one, fleet)[:4] for one in ADAPTERS[:1500]]


def test_if_hardly_any_replica_is_in_reach_all_are_looked_at() -> None:
    """Most of the weight is one replica's: the reach that holds enough on average holds that one alone."""
    fleet = {f"replica-{at}": 1.0 for at in range(200)} | {"giant": 1e6}
    assert top(ADAPTERS[:300], fleet, 3) == [rank(one, fleet)[:3] for one in ADAPTERS[:300]]


def test_the_words_of_pairs_are_uniform_and_tell_nothing_of_each_other() -> None:
    field = Field({f"replica-{at}": 1.0 for at in range(8)})
    u = np.exp(-np.array([field.distances(word) for word in hashes([f"a{at}" for at in range(20_000)])]))
    cells = np.floor(u * 16).astype(int)
    for column in cells.T:
        assert chi_square(np.bincount(column, minlength=16)) < _CERTAIN_15
    for one in range(8):
        for other in range(one):
            pairs = np.bincount(cells[:, one] * 16 + cells[:, other], minlength=256)
            assert chi_square(pairs) < _CERTAIN_255


def test_equal_names_on_both_sides_mean_nothing() -> None:
    names = [f"node-{at}" for at in range(20)]
    fleet = dict.fromkeys(names, 1.0)
    assert sum(rank(name, fleet)[0] == name for name in names) < 6


_CERTAIN_15, _CERTAIN_255 = 50.0, 360.0
"""Chi-square with 15 and with 255 degrees of freedom is above these once in 100,000 times."""


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())
