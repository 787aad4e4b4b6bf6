"""Slots: whoever has one keeps it as long as it is used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.replica_worker.core.slot_decisions import AllBusy, InUse, Loading, MustLoad, Resident
from services.replica_worker.core.slots import SlotTable
from shared.messages.identity import AdapterKey


def key(number: int) -> AdapterKey:
    return AdapterKey(adapter_id=f"acme-{number}", digest=f"{number:064x}")


def filled(count: int) -> SlotTable:
    """Adapter n is idle in slot n, and was used at n seconds."""
    table = SlotTable(count)
    for number in range(count):
        loaded = table.acquire(key(number), 0.0)
        assert isinstance(loaded, MustLoad)
        table.finish_load(loaded.slot, 0.0)
        table.release(loaded.slot, key(number), float(number))
    return table


def test_empty_slots_are_taken_first_and_then_the_longest_idle() -> None:
    table = SlotTable(2)
    assert table.acquire(key(1), 0.0) == MustLoad(slot=0, evict=None, reason="empty slot")
    table = filled(3)
    reference = table.acquire(key(0), 5.0)
    assert reference == Resident(slot=0, reason="resident")
    assert table.acquire(key(9), 6.0) == MustLoad(slot=1, evict=key(1), reason="evicts acme-1, idle the longest")


def test_a_slot_in_use_is_never_reassigned() -> None:
    table = filled(2)
    for number in range(2):
        table.acquire(key(number), 9.0)
    assert table.acquire(key(5), 9.0) == AllBusy(reason="all 2 slots have running requests or a load in flight")
    table.release(1, key(1), 9.5)
    assert table.acquire(key(5), 10.0) == MustLoad(slot=1, evict=key(1), reason="evicts acme-1, idle the longest")
    assert isinstance(table.acquire(key(6), 10.0), AllBusy)


def test_who_comes_during_a_load_has_a_reference_at_once() -> None:
    table = SlotTable(1)
    table.acquire(key(1), 0.0)
    assert table.acquire(key(1), 0.0) == Loading(slot=0, reason="its load is already under way")
    table.finish_load(0, 1.0)
    table.release(0, key(1), 1.0)
    assert isinstance(table.acquire(key(2), 2.0), AllBusy)
    table.release(0, key(1), 2.0)
    assert isinstance(table.acquire(key(2), 3.0), MustLoad)


def test_a_failed_load_leaves_an_empty_slot_and_no_references() -> None:
    table = SlotTable(1)
    table.acquire(key(1), 0.0)
    table.acquire(key(1), 0.0)
    table.fail_load(0)
    assert (table.references, table.empty, table.is_resident(key(1))) == (0, 1, False)
    with pytest.raises(ValueError, match="no reference of acme-1"):
        table.release(0, key(1), 0.0)


def test_a_background_load_evicts_nobody() -> None:
    table = filled(2)
    assert isinstance(table.acquire_free(key(9), 5.0), AllBusy)
    assert isinstance(table.acquire_free(key(1), 5.0), Resident)


def test_a_slot_that_is_being_cleared_is_nobodys() -> None:
    table = filled(1)
    assert table.vacate(key(0)) == 0
    assert not table.is_resident(key(0))
    assert isinstance(table.acquire(key(0), 5.0), AllBusy)
    assert table.vacate(key(0)) is None
    table.finish_clear(0)
    assert isinstance(table.acquire(key(0), 5.0), MustLoad)
    assert isinstance(table.vacate(key(0)), InUse)


def test_a_closed_slot_takes_nothing_new_and_is_open_once_it_has_changed_hands() -> None:
    table = filled(2)
    for number in (0, 1, 1):
        table.acquire(key(number), 9.0)
    table.close_only(0)
    assert table.closed == 0
    assert isinstance(table.acquire(key(0), 9.0), AllBusy)
    table.release(0, key(0), 9.5)
    assert table.acquire(key(7), 9.6) == MustLoad(slot=0, evict=key(0), reason="evicts acme-0, idle the longest")
    table.finish_load(0, 9.7)
    assert isinstance(table.acquire(key(7), 9.8), Resident)
    assert table.closed is None


def test_closing_another_slot_opens_the_one_before() -> None:
    table = filled(2)
    table.close_only(0)
    table.close_only(1)
    assert isinstance(table.acquire(key(0), 9.0), Resident)
    table.close_only(None)
    assert isinstance(table.acquire(key(1), 9.0), Resident)


def test_a_load_is_given_an_empty_or_idle_slot_and_no_other() -> None:
    table = filled(2)
    table.acquire(key(1), 5.0)
    with pytest.raises(ValueError, match="acme-9 cannot be given slot 1, which is ready"):
        table.load_into(1, key(9), 6.0)
    with pytest.raises(ValueError, match="acme-1 cannot be given slot 0"):
        table.load_into(0, key(1), 6.0)
    assert table.load_into(0, key(9), 6.0).evict == key(0)
    assert [(place.key, place.references) for place in table.places()] == [(key(9), 1), (key(1), 1)]


def test_evictions_and_loads_are_those_of_the_last_minute() -> None:
    table = filled(1)
    for number, now_s in ((1, 10.0), (2, 30.0)):
        loaded = table.acquire(key(number), now_s)
        assert isinstance(loaded, MustLoad)
        table.finish_load(0, now_s)
        table.release(0, key(number), now_s)
    turnover = table.turnover
    assert (turnover.evictions_per_min(30.0), turnover.loads_per_min(30.0)) == (2.0, 3.0)
    assert turnover.evictions_per_min(70.0) == 1.0
    assert (turnover.evictions, turnover.loads) == (2, 3)
    assert turnover.loads_per_min(90.0) == 0.0


def test_invariants_notice_what_is_broken() -> None:
    table = filled(2)
    assert table.broken_invariants() == []
    table._slots[0].references = -1
    table._slots[1].key = key(0)
    assert len(table.broken_invariants()) == 2


@given(st.integers(max_value=-1))
def test_no_table_has_fewer_than_no_slots(count: int) -> None:
    with pytest.raises(ValueError, match="cannot have"):
        SlotTable(count)


def test_without_slots_nobody_gets_one() -> None:
    table = SlotTable(0)
    assert isinstance(table.acquire(key(0), 0.0), AllBusy)
    assert isinstance(table.acquire_free(key(0), 0.0), AllBusy)
    assert (table.resident, table.busy, list(table.broken_invariants())) == ((), 0, [])


class SlotsUnderRandomUse(RuleBasedStateMachine):
    """A model that only knows who holds references, against the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(3)
        self.now_s = 0.0
        self.held: list[tuple[int, AdapterKey]] = []
        self.loading: dict[int, AdapterKey] = {}
        self.clearing: list[int] = []

    @rule(number=st.integers(0, 6), free=st.booleans())
    def acquire(self, number: int, free: bool) -> None:
        self.now_s += 1.0
        acquire = self.table.acquire_free if free else self.table.acquire
        acquired = acquire(key(number), self.now_s)
        if isinstance(acquired, AllBusy):
            return
        users = [used for slot, used in self.held if slot == acquired.slot]
        assert all(used == key(number) for used in users), "a slot in use was reassigned"
        assert acquired.slot not in self.clearing
        assert self.loading.get(acquired.slot, key(number)) == key(number)
        if isinstance(acquired, MustLoad):
            assert not users
            assert not (free and acquired.evict)
            self.loading[acquired.slot] = key(number)
        self.held.append((acquired.slot, key(number)))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 1000))
    def release(self, which: int) -> None:
        self.now_s += 1.0
        slot, used = self.held.pop(which % len(self.held))
        self.table.release(slot, used, self.now_s)

    @precondition(lambda self: self.loading)
    @rule(fails=st.booleans())
    def land(self, fails: bool) -> None:
        slot = next(iter(self.loading))
        loaded = self.loading.pop(slot)
        if fails:
            self.table.fail_load(slot)
            self.held = [each for each in self.held if each[0] != slot]
        else:
            self.table.finish_load(slot, self.now_s)
            assert self.table.is_resident(loaded)

    @rule(number=st.integers(0, 6))
    def vacate(self, number: int) -> None:
        used = key(number) in [each for _, each in self.held] or key(number) in self.loading.values()
        vacated = self.table.vacate(key(number))
        assert isinstance(vacated, InUse) == used
        if isinstance(vacated, int):
            self.clearing.append(vacated)

    @precondition(lambda self: self.clearing)
    @rule()
    def finish_clear(self) -> None:
        self.table.finish_clear(self.clearing.pop())

    @rule(slot=st.none() | st.integers(0, 2))
    def close_only(self, slot: int | None) -> None:
        self.table.close_only(slot)

    @rule(slot=st.integers(0, 2), number=st.integers(0, 6))
    def load_into(self, slot: int, number: int) -> None:
        place = self.table.places()[slot]
        if self.table.has_slot(key(number)) or not (place.idle or (place.key is None and slot not in self.clearing)):
            return
        self.now_s += 1.0
        self.table.load_into(slot, key(number), self.now_s)
        self.loading[slot] = key(number)
        self.held.append((slot, key(number)))

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.table.broken_invariants() == []
        assert self.table.references == len(self.held)
        assert self.table.busy == len({slot for slot, _ in self.held} | set(self.loading) | set(self.clearing))


TestSlotsUnderRandomUse = SlotsUnderRandomUse.TestCase
TestSlotsUnderRandomUse.settings = settings(max_examples=150, stateful_step_count=60)
