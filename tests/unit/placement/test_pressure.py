"""Thrash: evictions alone call for nothing before they last, then for owners or for replicas, and it ends quietly."""

from __future__ import annotations

import msgspec

from services.placement.core.pressure import Crowd, Thrash, ThrashPolicy, begins, looked_at
from services.placement.core.slots import Busy, given

POLICY = ThrashPolicy()
NOTHING = Thrash()


def crowd(adapters: int, slots: int, evictions: float = 100.0) -> Crowd:
    """Adapters a0, a1 … , the first the hottest, of the owners r1 and r2; r3 has slots too."""
    busy = tuple(Busy(f"a{at}", False, 50 - at, ("r1", "r2"), 1) for at in range(adapters))
    slots_of = {"r1": slots, "r2": slots, "r3": slots}
    return Crowd(
        pool_id="pool", busy=busy, slots=slots_of, given=given(busy, slots_of, {}),
        evictions_per_min={"r1": evictions, "r2": 0.0, "r3": 0.0},
    )  # fmt: skip


def look(seen: Crowd, *times_s: float, before: Thrash = NOTHING) -> Thrash:
    for now_s in times_s:
        before = looked_at(before, seen, now_s, POLICY)
    return before


def test_nothing_is_done_before_it_lasts() -> None:
    thrash = look(crowd(5, 2), 0.0, 4.9)
    assert (thrash.lifts, thrash.pressure) == ({}, None)
    assert not begins(thrash, 4.9, POLICY)
    assert begins(thrash, 5.0, POLICY)
    calm = look(crowd(5, 2, evictions=10.0), 4.95, before=thrash)
    assert look(crowd(5, 2), 5.0, before=calm).lifts == {}, "and begins anew after a moment of calm"


def test_who_finds_no_slot_gets_one_more_owner_for_a_while() -> None:
    thrash = look(crowd(5, 2), 0.0, 5.0)
    assert {name: lift.owners for name, lift in thrash.lifts.items()} == {"a4": 3}
    assert thrash.pressure is None
    calm = crowd(5, 2, evictions=0.0)
    assert look(calm, 304.0, before=thrash).lifts == thrash.lifts
    assert look(calm, 305.0, before=thrash).lifts == {}


def test_an_additional_owner_stays_while_its_replica_goes_on_evicting() -> None:
    """It has a slot on the third owner now, and would lose it to be homeless again."""
    thrash = look(crowd(5, 2), 0.0, 5.0)
    seen = crowd(4, 2)
    lifted = Busy("a4", False, 1, ("r1", "r2", "r3"), 1)
    housed = msgspec.structs.replace(seen, busy=(*seen.busy, lifted), given={**seen.given, "a4": ("r3",)})
    later = look(housed, *(float(second) for second in range(6, 400)), before=thrash)
    assert {name: lift.owners for name, lift in later.lifts.items()} == {"a4": 3}
    assert look(msgspec.structs.replace(housed, evictions_per_min={}), 400.0 + 300.0, before=later).lifts == {}


def test_the_hottest_are_helped_first_and_a_few_at_a_time() -> None:
    few = msgspec.structs.replace(POLICY, lifts=2)
    thrash = Thrash()
    for now_s in (0.0, 5.0):
        thrash = looked_at(thrash, crowd(26, 10), now_s, few)
    assert set(thrash.lifts) == {"a20", "a21"}
    housed = crowd(26, 10)
    housed = msgspec.structs.replace(housed, given={**housed.given, "a20": ("r3",), "a21": ("r3",)})
    soon = looked_at(thrash, housed, 6.0, few)
    assert soon.lifts == thrash.lifts, "help is given time to help"
    assert set(looked_at(soon, housed, 10.0, few).lifts) == {"a20", "a21", "a22", "a23"}


def test_a_pool_that_is_too_small_wishes_for_as_many_as_would_do_at_most_twice_as_many() -> None:
    for adapters, replicas in ((7, 4), (12, 6), (60, 6)):
        pressure = look(crowd(adapters, 2), 0.0, 5.0).pressure
        assert pressure is not None
        assert pressure.replicas == replicas
        assert look(crowd(adapters, 2), 0.0, 5.0).lifts == {}, "more owners would only move the trouble"


def test_a_wish_grows_but_does_not_shrink_until_it_is_taken_back() -> None:
    thrash = look(crowd(12, 2), 0.0, 5.0)
    less = look(crowd(7, 2), 6.0, before=thrash)
    assert less.pressure is thrash.pressure
    calm = look(crowd(7, 2, evictions=0.0), 65.0, before=less)
    assert calm.pressure is thrash.pressure
    eased = look(crowd(7, 2, evictions=0.0), 66.0, before=calm).pressure
    assert eased is not None
    assert eased.replicas == 0
