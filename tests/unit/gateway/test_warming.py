"""A replica that warms is left alone, unless a request would go without."""

from __future__ import annotations

import pytest

from services.gateway.core.question import STRATEGIES, RoutingPolicy
from tests.unit.gateway.hall import Hall
from tests.unit.gateway.samples import ADAPTER, POOL

WARMS = {"warming": True, "to_warm": 3}


@pytest.fixture
def hall() -> Hall:
    """The new one is the first owner of nobody in particular, and the lightest by far."""
    hall = Hall()
    hall.seat("old", load=50_000, requests=4)
    hall.seat("new", **WARMS)
    return hall


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_goes_to_a_replica_that_warms_while_another_can_take_it(strategy: str) -> None:
    hall = Hall(RoutingPolicy(strategy=strategy))  # type: ignore[arg-type]
    hall.seat("old", load=50_000, requests=4)
    hall.seat("new", tier="gpu", **WARMS)
    for adapter in (ADAPTER, None):
        assert {hall.chosen(adapter, draw=draw)[0] for draw in (0.0, 0.999)} == {"old"}


def test_once_it_is_warm_it_is_one_of_them(hall: Hall) -> None:
    assert hall.chosen(None) == ("old", "base")
    hall.report("new")
    assert hall.chosen(None) == ("new", "base")


def test_the_only_replica_takes_requests_at_once() -> None:
    hall = Hall()
    hall.seat("only", **WARMS)
    assert hall.chosen() == ("only", "warming")
    assert hall.chosen(None) == ("only", "warming")


def test_where_all_warm_each_adapter_goes_where_it_would_go_otherwise() -> None:
    cold, warm = Hall(), Hall()
    for name in ("r1", "r2", "r3", "r4"):
        cold.seat(name, **WARMS)
        warm.seat(name)
    assert cold.chosen() == (warm.chosen()[0], "warming")
    choice = cold.ask()
    assert choice.reason == "nobody else can take it: a replica that still warms, the first-ranked owner"


@pytest.mark.parametrize("gone", [{"ready": False}, {"draining": True}])
def test_when_the_others_go_it_is_taken_and_given_back_when_they_return(hall: Hall, gone: dict[str, bool]) -> None:
    hall.report("old", **gone)
    assert hall.chosen() == ("new", "warming")
    hall.report("old")
    assert hall.chosen()[0] == "old"


def test_when_the_others_fall_silent_it_is_taken(hall: Hall) -> None:
    hall.report("new", now_s=3.0, **WARMS)
    assert hall.chosen(now_s=3.0)[0] == "old"
    assert hall.chosen(now_s=3.1) == ("new", "warming")


def test_who_was_refused_by_all_others_goes_there(hall: Hall) -> None:
    assert hall.chosen(tried=("old",)) == ("new", "warming")
    assert hall.refused(tried=("old", "new")).reason.startswith("No replica can take the request")


def test_who_would_wait_for_a_row_elsewhere_goes_there_while_it_has_one(hall: Hall) -> None:
    hall.report("old", requests=7)
    assert hall.chosen()[0] == "old"
    hall.report("old", requests=8)
    assert hall.chosen() == ("new", "spill_warming")
    hall.report("new", requests=8, **WARMS)
    assert hall.chosen()[0] == "old"


def test_of_several_that_warm_the_one_that_has_it_or_is_to_have_it_is_taken() -> None:
    hall = Hall()
    hall.seat("old", requests=8)
    names = [f"new-{number}" for number in range(6)]
    for name in names:
        hall.seat(name, **WARMS)
    [pool] = hall.fleet.pools((POOL,), 0.0)
    ranking = [seat.replica_id for seat in pool.rankings.after(ADAPTER.adapter_id, 0) if seat.replica_id != "old"]
    assert hall.chosen() == (ranking[0], "spill_warming")
    hall.seat(ranking[4], tier="gpu", **WARMS)
    assert hall.chosen() == (ranking[4], "spill_warming")


def big_hall() -> tuple[Hall, list[str]]:
    """One of six is warm, and no owner; the others by the adapter's ranking."""
    hall = Hall()
    for number in range(6):
        hall.seat(f"r{number}", **WARMS)
    [pool] = hall.fleet.pools((POOL,), 0.0)
    ranking = [seat.replica_id for seat in pool.rankings.after(ADAPTER.adapter_id, 0)]
    hall.report(ranking[5])
    return hall, ranking


def test_after_a_power_cut_nobody_fetches_for_owners_that_still_warm() -> None:
    """The first to be warm would fetch everybody's adapters, and its own would have to go."""
    hall, ranking = big_hall()
    assert hall.chosen() == (ranking[0], "warming_owner")
    assert hall.chosen(tried=(ranking[0],)) == (ranking[1], "warming_owner")
    assert hall.chosen(tried=(ranking[0], ranking[1]))[0] == ranking[5]
    hall.report(ranking[0], requests=8, **WARMS)
    assert hall.chosen() == (ranking[1], "warming_owner")


def test_who_has_it_at_hand_or_is_a_warm_owner_takes_it_from_owners_that_warm() -> None:
    hall, ranking = big_hall()
    hall.seat(ranking[5], tier="ram")
    assert hall.chosen() == (ranking[5], "spill_ram")
    hall, ranking = big_hall()
    hall.report(ranking[1])
    assert hall.chosen() == (ranking[1], "first")


def test_only_affinity_knows_owners() -> None:
    hall, ranking = big_hall()
    hall.policy = RoutingPolicy(strategy="least_loaded")
    assert hall.chosen() == (ranking[5], "least_loaded")
