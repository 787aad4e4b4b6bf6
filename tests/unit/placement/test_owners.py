"""Owners: the first k of a ranking that is remembered for as long as it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.placement.core import owners
from services.placement.core.owners import Rankings, owners_of
from shared.hashing import rank
from shared.messages.desired import Member, OwnerCount
from tests.simulation.speakers import POOL, adapter

FLEET = {f"r{number:02}": 1.0 for number in range(26)}


def member(replica_id: str, *, rank_limit: int = 16) -> Member:
    return Member(
        replica_id=replica_id,
        incarnation="first",
        weight=1.0,
        slots=4,
        rank_limit=rank_limit,
        ram_budget_bytes=0,
        disk_budget_bytes=0,
        ready=True,
    )


def test_c70_a_replica_below_the_adapters_rank_is_passed_over() -> None:
    members = {"r1": member("r1", rank_limit=8), "r2": member("r2"), "r3": member("r3")}
    found = owners_of(adapter("a"), ("r1", "r2", "r3"), members, OwnerCount(pool_id=POOL))
    assert found == ("r2", "r3")


def test_an_exception_has_its_own_number_of_owners() -> None:
    members = {name: member(name) for name in ("r1", "r2", "r3")}
    count = OwnerCount(pool_id=POOL, owners=1, exceptions={"hot": 3})
    ranking = ("r1", "r2", "r3")
    assert owners_of(adapter("hot"), ranking, members, count) == ranking
    assert owners_of(adapter("cold"), ranking, members, count) == ("r1",)


def test_removing_one_of_26_replicas_moves_about_a_26th() -> None:
    adapter_ids = [f"adapter-{number}" for number in range(5_000)]
    before, after = Rankings(FLEET), Rankings({name: 1.0 for name in FLEET if name != "r07"})
    moved = sum(len(set(after.of(adapter_id)[:2]) - set(before.of(adapter_id)[:2])) for adapter_id in adapter_ids)
    expected = 10_000 / 26
    assert 0.8 * expected < moved < 1.2 * expected


WEIGHTS = st.dictionaries(st.sampled_from(sorted(FLEET)[:8]), st.sampled_from([0.0, 0.5, 1.0, 2.0]))


@given(st.lists(WEIGHTS, min_size=1, max_size=5))
def test_rankings_that_follow_the_weights_are_those_computed_from_scratch(history: list[dict[str, float]]) -> None:
    rankings = Rankings({})
    for number, weights in enumerate(history):
        rankings = rankings.under(weights)
        for adapter_id in ("known", f"since {number}"):
            assert rankings.of(adapter_id) == rank(adapter_id, weights)


def test_a_newcomer_costs_a_bisection_and_a_loss_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = Rankings(FLEET)
    before = rankings.of("known")
    asked: list[int] = []

    def counted(adapter_id: str, weights: dict[str, float]) -> tuple[str, ...]:
        asked.append(len(weights))
        return rank(adapter_id, weights)

    monkeypatch.setattr(owners, "rank", counted)
    fewer = rankings.under({name: 1.0 for name in FLEET if name != "r07"})
    assert fewer.of("known") == tuple(name for name in before if name != "r07")
    assert asked == []
    assert fewer.under(FLEET).of("known") == before
    assert set(asked) == {2}
    assert len(asked) <= 5
    assert rankings.under(dict(FLEET)) is rankings


def test_a_fleet_is_ranked_in_portions() -> None:
    rankings = Rankings(FLEET)
    adapter_ids = [f"a{number}" for number in range(10)]
    portions = 1
    while rankings.fill(adapter_ids, portion=4):
        portions += 1
    assert portions == 3
