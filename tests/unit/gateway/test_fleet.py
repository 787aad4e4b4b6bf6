"""What is known of replicas, and how much this gateway added to them since they last said so."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.core.fleet import Fleet
from services.gateway.core.replica import Seat
from tests.unit.gateway import samples
from tests.unit.gateway.samples import ADAPTER, POOL, member, report


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(fresh_s=3.0)
    fleet.put_membership(POOL, samples.membership(member("r0"), member("r1")))
    fleet.on_report(report("r0", tokens_in_flight=100, running=1, queue_depth=1), 0.0)
    fleet.on_report(report("r1"), 0.0)
    return fleet


def look(fleet: Fleet, replica_id: str = "r0", now_s: float = 0.0) -> Seat:
    [pool] = fleet.pools([POOL], now_s)
    return pool.seats[replica_id]


def requests(fleet: Fleet, replica_id: str = "r0") -> int:
    return look(fleet, replica_id).replica.requests


def test_a_candidate_is_the_last_report(fleet: Fleet) -> None:
    seen = look(fleet)
    replica = seen.replica
    assert (seen.load_tokens, replica.requests, replica.max_rows, replica.tier(ADAPTER)) == (100, 2, 8, "remote")
    assert (seen.usable, seen.against()) == (True, "")


def test_what_was_sent_counts_until_a_report_does(fleet: Fleet) -> None:
    fleet.sends("r0").sent("a", 50)
    assert (look(fleet).load_tokens, requests(fleet)) == (150, 3)
    assert fleet.promised_tokens() == {"r0": 50}
    fleet.sends("r0").answered("a")
    assert look(fleet).load_tokens == 150
    fleet.on_report(report("r0", tokens_in_flight=148, running=2), 1.0)
    assert look(fleet, now_s=1.0).load_tokens == 148
    assert fleet.promised_tokens() == {}


def test_a_report_that_was_under_way_does_not_hide_what_was_just_sent(fleet: Fleet) -> None:
    fleet.sends("r0").sent("a", 50)
    fleet.on_report(report("r0", tokens_in_flight=100), 1.0)
    assert look(fleet).load_tokens == 150


def test_what_ended_is_taken_off_until_a_report_does(fleet: Fleet) -> None:
    sends = fleet.sends("r0")
    sends.sent("a", 50)
    sends.answered("a")
    fleet.on_report(report("r0", tokens_in_flight=150, running=3), 1.0)
    sends.ended("a")
    assert (look(fleet).load_tokens, requests(fleet)) == (100, 2)
    fleet.on_report(report("r0", tokens_in_flight=100, running=2), 2.0)
    assert (look(fleet).load_tokens, requests(fleet)) == (100, 2)


def test_what_ends_before_any_report_never_counted(fleet: Fleet) -> None:
    for answered in (False, True):
        fleet.sends("r0").sent("a", 50)
        if answered:
            fleet.sends("r0").answered("a")
        fleet.sends("r0").ended("a")
        fleet.sends("r0").ended("a")
        assert look(fleet).load_tokens == 100


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ready": False, "reason": "the engine starts"}, "it is not ready: the engine starts"),
        ({"draining": True}, "it drains"),
    ],
)
def test_what_a_report_says_against_it(fleet: Fleet, changes: dict[str, Any], reason: str) -> None:
    fleet.on_report(report("r0", **changes), 1.0)
    assert (look(fleet, now_s=1.0).against(), look(fleet).usable) == (reason, False)


def test_a_report_grows_old(fleet: Fleet) -> None:
    assert look(fleet, now_s=3.0).usable
    assert not look(fleet, now_s=3.1).usable
    assert look(fleet, now_s=3.1).against() == "its last report is older than 3 s"


def test_what_placement_says_against_it(fleet: Fleet) -> None:
    starting, draining = member("r0", ready=False), member("r1", draining=True)
    unheard, leaving = member("r2"), member("r3", weight=0.0)
    fleet.put_membership(POOL, samples.membership(starting, draining, unheard, leaving))
    reasons = {replica_id: seat.against() for replica_id, seat in fleet.pools([POOL], 0.0)[0].seats.items()}
    assert reasons == {
        "r0": "placement has not let it in yet",
        "r1": "it drains",
        "r2": "it has not reported yet",
    }


def test_an_older_placement_is_not_listened_to(fleet: Fleet) -> None:
    fleet.put_membership(POOL, samples.membership(member("r0"), epoch=3))
    fleet.put_membership(POOL, samples.membership(member("r1"), epoch=2))
    assert [seat.replica_id for seat in fleet.pools([POOL], 0.0)[0].usable] == ["r0"]
    fleet.put_membership(POOL, None)
    assert fleet.pools([POOL], 0.0) == []


def test_residency_counts_for_the_incarnation_that_said_it(fleet: Fleet) -> None:
    fleet.on_residency(samples.residency("r0", "gpu"), 0.0)
    assert look(fleet).replica.tier(ADAPTER) == "gpu"
    assert look(fleet).replica.tier(None) == "remote"
    [pool] = fleet.pools([POOL], 0.0)
    assert fleet.holders(pool, ADAPTER, "gpu") == [pool.seats["r0"]]
    fleet.on_report(report("r0", incarnation="r0-2"), 1.0)
    assert look(fleet).replica.tier(ADAPTER) == "remote"
    assert fleet.holders(pool, ADAPTER, "gpu") == []


def test_a_new_incarnation_owes_nothing(fleet: Fleet) -> None:
    fleet.sends("r0").sent("a", 50)
    fleet.on_report(report("r0", incarnation="r0-2"), 1.0)
    fleet.sends("r0").ended("a")
    assert look(fleet).load_tokens == 0


def test_owners_of_a_pool_and_of_a_hot_adapter(fleet: Fleet) -> None:
    assert fleet.owners(POOL, ADAPTER.adapter_id) == 2
    fleet.put_owner_count(POOL, samples.owner_count(owners=3))
    assert fleet.owners(POOL, ADAPTER.adapter_id) == 3
    fleet.put_owner_count(POOL, samples.owner_count(exceptions={ADAPTER.adapter_id: 6}))
    assert fleet.owners(POOL, ADAPTER.adapter_id) == 6
    fleet.put_owner_count(POOL, samples.owner_count(owners=4, epoch=2))
    fleet.put_owner_count(POOL, samples.owner_count(owners=5, epoch=1))
    assert fleet.owners(POOL, ADAPTER.adapter_id) == 4
    fleet.put_owner_count(POOL, None)
    assert fleet.owners(POOL, ADAPTER.adapter_id) == 2


def test_reports_that_nobody_asks_about_take_no_memory(fleet: Fleet) -> None:
    for second in range(1, 100):
        fleet.on_report(report("r0"), float(second))
    assert len(fleet._reports) <= 5
    assert look(fleet, now_s=99.0).usable
    assert not look(fleet, "r1", now_s=99.0).usable


def test_silence(fleet: Fleet) -> None:
    assert not fleet.is_silent("r0", 3.0)
    assert fleet.is_silent("r0", 3.1)
    fleet.on_heard("r0", 3.1)
    assert not fleet.is_silent("r0", 6.0)
    assert look(fleet, now_s=6.0).against() != ""


def test_nobodys_silence_counts_while_nobody_can_be_heard(fleet: Fleet) -> None:
    fleet.on_deaf(10.0)
    assert not fleet.is_silent("r0", 13.0)
    assert fleet.is_silent("r0", 13.1)


def test_those_long_gone_take_no_memory(fleet: Fleet) -> None:
    fleet.on_heard("r1", 100.0)
    assert fleet.forget_older_than(50.0) == ["r0"]
    assert look(fleet).against() == "it has not reported yet"
    assert look(fleet, "r1").replica.max_rows == 8


def test_one_that_says_only_what_it_holds_is_forgotten_as_well(fleet: Fleet) -> None:
    fleet.on_residency(samples.residency("r9", "gpu"), 10.0)
    assert fleet.forget_older_than(5.0) == ["r0", "r1"]
    assert fleet.forget_older_than(11.0) == ["r9"]


def test_nobody_is_forgotten_for_what_was_said_while_this_gateway_heard_nothing(fleet: Fleet) -> None:
    fleet.on_deaf(700.0)
    assert fleet.forget_older_than(100.0) == []
    assert fleet.forget_older_than(701.0) == ["r0", "r1"]


def test_names_that_were_only_ever_named_are_forgotten(fleet: Fleet) -> None:
    fleet.put_membership(POOL, samples.membership(member("r0"), member("r1"), member("r2")))
    fleet.put_membership(POOL, samples.membership(member("r0"), member("r1")))
    fleet.sends("r3").ended("unknown")
    fleet.sends("r4").sent("a", 50)
    fleet.forget_older_than(-1.0)
    assert set(fleet._replicas) == {"r0", "r1", "r4"}


def test_who_has_it_in_a_slot_follows_every_kind_of_message(fleet: Fleet) -> None:
    [pool] = fleet.pools([POOL], 0.0)

    def resident() -> list[str]:
        return [seat.replica_id for seat in fleet.holders(pool, ADAPTER, "gpu")]

    fleet.on_residency(samples.residency("r1", "gpu"), 0.0)
    fleet.on_residency(samples.residency("r0", "gpu"), 0.0)
    assert resident() == ["r0", "r1"]
    fleet.on_residency(samples.residency("r0", "ram", sequence=2, snapshot=False), 0.0)
    assert resident() == ["r1"]
    fleet.on_residency(samples.residency("r0", "gpu", sequence=2, snapshot=False), 0.0)
    assert resident() == ["r1"], "repeated, so old"
    fleet.on_residency(samples.residency("r1", "gpu", sequence=2, entries=()), 0.0)
    assert resident() == []
    fleet.on_residency(samples.residency("r1", "gpu", sequence=3, snapshot=False), 0.0)
    fleet.on_residency(samples.residency("r1", "ram", incarnation="r1-2", snapshot=False), 0.0)
    fleet.on_report(report("r1", incarnation="r1-2"), 0.0)
    assert resident() == []
