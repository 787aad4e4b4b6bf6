"""Whose turn it is, for every reason that there is."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.dispatch import next_batch
from services.replica_worker.core.dispatch_order import Order
from services.replica_worker.core.dispatch_view import Dispatch, DispatchPolicy, DispatchView, Load, Share, Waiting
from services.replica_worker.core.slots import SlotTable
from shared.messages.identity import AdapterKey

POLICY = DispatchPolicy(age_bound_s=1.0, window_tokens=100.0, debt_tokens=1000.0, loads_at_once=2)


def key(name: str) -> AdapterKey:
    return AdapterKey(adapter_id=name, digest=f"digest of {name}")


def waiting(request_id: str, adapter: str | None = None, **changes: Any) -> Waiting:
    given = {"tenant_id": adapter or "base", "tokens": 10, "passed_over_since_s": 10.0, **changes}
    return Waiting(request_id=request_id, key=None if adapter is None else key(adapter), **given)


def table_of(count: int, *resident: str, running: tuple[str, ...] = ()) -> SlotTable:
    """Adapters in slots in this order, each used a second after the one before it; `running` have a reference."""
    table = SlotTable(count)
    for at, name in enumerate(resident):
        loaded = table.acquire(key(name), float(at))
        table.finish_load(loaded.slot, float(at))  # type: ignore[union-attr]
        if name not in running:
            table.release(loaded.slot, key(name), float(at))  # type: ignore[union-attr]
    return table


def decide(table: SlotTable, *requests: Waiting, rows: int = 8, **changes: Any) -> Dispatch:
    counters: dict[str, float] = changes.pop("counters", {})
    weights: dict[str, float] = changes.pop("weights", {})
    shares = {
        tenant: Share(counters.get(tenant, 0.0), weights.get(tenant, 1.0)) for tenant in {r.tenant_id for r in requests}
    }
    given = {"now_s": 10.0, "loads_in_flight": 0, **changes}
    return next_batch(
        DispatchView(free_rows=rows, places=table.places(), waiting=requests, shares=shares, **given), POLICY
    )


def started(decided: Dispatch) -> list[str]:
    return [start.request_id for start in decided.start]


def loaded(decided: Dispatch) -> list[tuple[str, int]]:
    return [(load.key.adapter_id, load.slot) for load in decided.load]


def test_what_needs_no_load_starts_in_the_order_of_its_arrival() -> None:
    decided = decide(table_of(2, "a"), waiting("r1", "a"), waiting("r2", "a"), waiting("r3"), rows=2)
    assert started(decided) == ["r1", "r3"]
    assert decided.waits == {"row": 1}


def test_the_customer_with_the_smallest_counter_is_next() -> None:
    requests = (waiting("r1", "a", tenant_id="rich"), waiting("r2", "a", tenant_id="poor"))
    decided = decide(table_of(1, "a"), *requests, rows=1, counters={"rich": 500.0, "poor": 200.0})
    assert started(decided) == ["r2"]
    assert decided.start[0].reason == "its customer has had the least"


def test_each_start_counts_before_the_next_is_chosen_and_by_weight() -> None:
    requests = [waiting(f"{tenant}{at}", tenant_id=tenant, tokens=200) for tenant in ("x", "y") for at in range(6)]
    alike = started(decide(table_of(1), *requests, rows=6))
    assert sorted(each[0] for each in alike) == list("xxxyyy")
    uneven = started(decide(table_of(1), *requests, rows=6, weights={"x": 2.0}))
    assert sorted(each[0] for each in uneven) == list("xxxxyy")


def test_within_the_window_what_is_resident_goes_first_and_the_other_is_loaded_meanwhile() -> None:
    requests = (waiting("cold", "c", tenant_id="least"), waiting("warm", "a", tenant_id="near"))
    decided = decide(table_of(2, "a", running=("a",)), *requests, rows=1, counters={"least": 0.0, "near": 90.0})
    assert started(decided) == ["warm"]
    assert loaded(decided) == [("c", 1)]
    assert decided.waits == {"load": 1}


def test_beyond_the_window_a_row_is_kept_for_whoever_is_loading() -> None:
    requests = (waiting("cold", "c", tenant_id="least"), waiting("warm", "a", tenant_id="far"))
    decided = decide(table_of(2, "a", running=("a",)), *requests, rows=1, counters={"least": 0.0, "far": 101.0})
    assert started(decided) == []
    assert loaded(decided) == [("c", 1)]
    assert decided.waits == {"load": 1, "row": 1}


def test_rows_do_not_stay_empty_for_whoever_can_get_no_slot() -> None:
    requests = (waiting("cold", "c", tenant_id="least"), waiting("warm", "a", tenant_id="far"))
    decided = decide(table_of(1, "a", running=("a",)), *requests, rows=1, counters={"far": 5_000.0})
    assert started(decided) == ["warm"]
    assert decided.waits == {"slot": 1}


def test_the_longest_idle_that_nobody_waits_for_makes_room() -> None:
    decided = decide(table_of(3, "a", "b", "c"), waiting("r1", "a"), waiting("r2", "new"), rows=0)
    assert decided.load == (Load(key=key("new"), slot=1, reason="evicts b, idle the longest"),)


def test_customers_at_the_same_point_take_no_slots_from_each_other() -> None:
    table = table_of(1, "a")
    assert loaded(decide(table, waiting("r1", "a"), waiting("r2", "b"), rows=0)) == []
    decided = decide(table, waiting("r1", "a"), waiting("r2", "b"), rows=0, counters={"a": 101.0})
    assert decided.load[0].reason == "evicts a, whose turn comes later"


def test_no_more_loads_than_the_link_takes() -> None:
    requests = [waiting(f"r{at}", f"new-{at}") for at in range(4)]
    assert len(decide(table_of(4), *requests).load) == 2
    assert len(decide(table_of(4), *requests, loads_in_flight=1).load) == 1
    assert decide(table_of(4), *requests, loads_in_flight=2).load == ()


@pytest.mark.parametrize(("slots", "running", "rows"), [(8, True, 34), (8, False, 0), (8, True, 0), (250, False, 34)])
@pytest.mark.parametrize("tenants", [1, 16, 256])
def test_a_decision_over_256_that_wait_looks_at_each_a_few_times(
    monkeypatch: pytest.MonkeyPatch, slots: int, running: bool, rows: int, tenants: int
) -> None:
    """The event loop that decides also streams: what grows with the square of those who wait is seen in every gap."""
    looks, is_aged = itertools.count(), Order.is_aged
    monkeypatch.setattr(Order, "is_aged", lambda order, first: (next(looks), is_aged(order, first))[1])
    names = [f"hot-{at}" for at in range(slots)]
    table = table_of(slots, *names, running=tuple(names) if running else ())
    requests = [waiting(f"r{at}", f"new-{at}", tenant_id=f"t{at % tenants}") for at in range(256)]
    requests += [] if running else [waiting(f"h{at}", f"hot-{at % slots}", tenant_id="t0") for at in range(64)]
    busy = {place.slot: frozenset({"t0"}) for place in table.places()} if running else {}
    decide(table, *requests, rows=rows, pausable=busy, now_s=10.9)
    assert next(looks) < 12 * len(requests)


def test_c64_whoever_was_passed_over_for_too_long_is_next() -> None:
    old = waiting("old", "a", tenant_id="rich", passed_over_since_s=8.9)
    new = waiting("new", "a", tenant_id="poor")
    decided = decide(table_of(1, "a"), new, old, rows=1, counters={"rich": 900.0})
    assert decided.start[0].request_id == "old"
    assert decided.start[0].reason == "passed over for 1.1 s"


def test_age_carries_one_request_of_an_adapter_at_a_time() -> None:
    old = [waiting(f"old-{at}", "a", tenant_id="rich", passed_over_since_s=1.0) for at in range(3)]
    new = [waiting(f"new-{at}", "b", tenant_id="poor") for at in range(3)]
    decided = decide(table_of(2, "a", "b"), *old, *new, rows=4, counters={"rich": 900.0})
    assert started(decided) == ["old-0", "new-0", "new-1", "new-2"]


def test_age_does_not_carry_a_customer_further_than_its_debt_may_grow() -> None:
    old = waiting("old", "a", tenant_id="rich", passed_over_since_s=1.0)
    decided = decide(table_of(2, "a", "b"), old, waiting("new", "b"), rows=1, counters={"rich": 1_001.0})
    assert started(decided) == ["new"]


def test_c64_one_slot_is_closed_for_whoever_waits_too_long_and_stays_closed() -> None:
    table = table_of(2, "a", "b", running=("a", "b"))
    table.acquire(key("a"), 5.0)
    decided = decide(table, waiting("old", "c", passed_over_since_s=8.0))
    assert decided.closed == 1
    assert decided.closed_reason == "slot 1 takes nothing new: c waits too long for a slot"
    table.close_only(decided.closed)
    table.acquire(key("b"), 6.0)
    hot = waiting("hot", "b")
    again = decide(table, waiting("old", "c", passed_over_since_s=8.0), hot)
    assert (again.closed, started(again)) == (1, [])
    assert decide(table, hot).closed is None


def test_a_slot_that_drained_goes_to_whoever_it_was_closed_for() -> None:
    table = table_of(2, "a", "b", running=("a",))
    table.close_only(1)
    old, hot = waiting("old", "c", passed_over_since_s=8.0), waiting("hot", "b", passed_over_since_s=9.5)
    decided = decide(table, hot, old)
    assert loaded(decided) == [("c", 1)]
    assert decided.closed is None


def test_an_adapter_whose_own_slot_is_closed_is_given_no_second_one() -> None:
    table = table_of(2, "a")
    table.close_only(0)
    assert loaded(decide(table, waiting("r1", "a", passed_over_since_s=1.0))) == []


def test_a_slot_is_closed_for_an_operation_too() -> None:
    table = table_of(1, "a", running=("a",))
    assert decide(table, operation_since_s=9.5).closed is None
    assert decide(table, operation_since_s=8.0).closed == 0


NAMES = "abcdef"


@st.composite
def tables(draw: st.DrawFn) -> SlotTable:
    """Any slots: empty, idle, running or loading."""
    count = draw(st.integers(1, 4))
    resident = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=count))
    table = table_of(count, *resident, running=tuple(draw(st.sets(st.sampled_from(NAMES)))))
    loading = key(draw(st.sampled_from(NAMES)))
    if draw(st.booleans()) and not table.has_slot(loading):
        table.acquire(loading, 10.0)
    return table


@st.composite
def requests(draw: st.DrawFn) -> tuple[Waiting, ...]:
    adapters, tenants, ages = st.sampled_from([None, *NAMES]), st.sampled_from("xyz"), st.floats(0.0, 10.0)
    drawn = draw(st.lists(st.tuples(adapters, tenants, ages), max_size=12))
    return tuple(
        waiting(f"r{at}", adapter, tenant_id=tenant, passed_over_since_s=since_s)
        for at, (adapter, tenant, since_s) in enumerate(drawn)
    )


COUNTERS = st.fixed_dictionaries({tenant: st.floats(0.0, 3_000.0) for tenant in "xyz"})


@given(table=tables(), asked=requests(), rows=st.integers(0, 6), counters=COUNTERS)
def test_whatever_is_decided_can_be_applied(
    table: SlotTable, asked: tuple[Waiting, ...], rows: int, counters: dict[str, float]
) -> None:
    decided = decide(table, *asked, rows=rows, counters=counters)
    assert len(decided.start) <= rows
    assert sum(decided.waits.values()) == len(asked) - len(decided.start)
    wanted = {request.request_id: request.key for request in asked}
    for start in decided.start:
        adapter = wanted[start.request_id]
        assert adapter is None or table.is_resident(adapter)
        if adapter is not None:
            table.acquire(adapter, 10.0)
    for load in decided.load:
        table.load_into(load.slot, load.key, 10.0)
    table.close_only(decided.closed)
    assert table.broken_invariants() == []
