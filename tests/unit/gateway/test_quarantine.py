"""Replicas that failed to load an adapter are left alone with it, the longer the more often."""

from __future__ import annotations

import pytest

from services.gateway.core.quarantine import Quarantine, QuarantinePolicy
from shared.hashing import rank
from shared.messages.identity import AdapterKey
from tests.unit.gateway import samples
from tests.unit.gateway.hall import Hall
from tests.unit.gateway.samples import ADAPTER

OTHER = AdapterKey(adapter_id="globex-1", digest="c" * 64)
FIRST, SECOND = rank(ADAPTER.adapter_id, {"r0": 1.0, "r1": 1.0})


@pytest.fixture
def hall() -> Hall:
    made = Hall()
    made.seat("r0")
    made.seat("r1")
    return made


def keep_fresh(hall: Hall, now_s: float) -> None:
    for name in ("r0", "r1"):
        hall.report(name, now_s=now_s)


def test_one_that_failed_is_left_alone_with_this_adapter_and_no_other(hall: Hall) -> None:
    hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0)
    assert hall.chosen()[0] == SECOND
    assert hall.chosen(OTHER)[0] == rank(OTHER.adapter_id, {"r0": 1.0, "r1": 1.0})[0]
    assert hall.chosen(None)[0] == "r0"


def test_it_is_asked_again_when_its_time_is_over(hall: Hall) -> None:
    assert hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0) == 2.0
    assert hall.chosen(now_s=1.9)[0] == SECOND
    assert hall.chosen(now_s=2.0)[0] == FIRST


def test_each_failure_doubles_the_time_up_to_a_bound() -> None:
    quarantine = Quarantine(QuarantinePolicy(first_s=2.0, most_s=10.0))
    assert [quarantine.failed("r0", ADAPTER, at_s) for at_s in (100.0, 102.0, 106.0, 114.0)] == [
        102.0,
        106.0,
        114.0,
        124.0,
    ]
    assert QuarantinePolicy().pause_s(10_000) == 60.0


def test_requests_that_waited_for_the_same_load_are_one_failure(hall: Hall) -> None:
    assert [hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0) for _ in range(20)] == [2.0] * 20
    assert hall.fleet.on_load_failed(FIRST, ADAPTER, 1.9) == 2.0
    assert hall.fleet.on_load_failed(FIRST, ADAPTER, 2.0) == 6.0


@pytest.mark.parametrize("how", ["residency", "accepted", "restart"])
def test_a_success_ends_it_and_the_doubling(hall: Hall, how: str) -> None:
    hall.fleet.on_load_failed(FIRST, ADAPTER, -2.0)
    hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0)
    match how:
        case "residency":
            hall.fleet.on_residency(samples.residency(FIRST, "gpu"), 0.0)
        case "accepted":
            hall.fleet.on_loaded(FIRST, ADAPTER)
        case "restart":
            hall.report(FIRST, incarnation="another")
    assert hall.chosen()[0] == FIRST
    assert hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0) == 2.0


def test_to_hold_it_in_ram_is_no_success(hall: Hall) -> None:
    hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0)
    hall.fleet.on_residency(samples.residency(FIRST, "ram"), 0.0)
    assert hall.chosen()[0] == SECOND


def test_where_every_load_failed_the_client_is_told_when_to_come_again(hall: Hall) -> None:
    hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0)
    hall.fleet.on_load_failed(SECOND, ADAPTER, 1.0)
    nobody = hall.refused(now_s=1.5)
    assert (nobody.code, nobody.retry_after_s, nobody.may_change) == ("adapter_unavailable", 0.5, False)
    assert f"{SECOND}: it could not load the adapter and is left alone with it for 2 s more" in nobody.reason


def test_somebody_who_may_come_up_is_waited_for(hall: Hall) -> None:
    hall.fleet.on_load_failed(FIRST, ADAPTER, 0.0)
    hall.report(SECOND, ready=False)
    nobody = hall.refused()
    assert (nobody.code, nobody.may_change) == ("no_replica", True)


def test_what_is_long_over_takes_no_memory() -> None:
    quarantine = Quarantine(QuarantinePolicy(first_s=2.0, most_s=10.0))
    quarantine.failed("r0", ADAPTER, 0.0)
    quarantine.forget_older_than(12.0)
    assert quarantine.until_s("r0", ADAPTER) == 2.0
    quarantine.forget_older_than(12.1)
    assert quarantine.until_s("r0", ADAPTER) == 0.0
    quarantine.failed("r0", ADAPTER, 20.0)
    quarantine.forget("r0")
    assert quarantine.of(ADAPTER, 20.0) == frozenset()
