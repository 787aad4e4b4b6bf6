"""Byte budgets: what is used or arriving stays, the rest goes by age."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.replica_worker.core.tiers import ByteBudget, NoRoom, Room


def filled() -> ByteBudget[str]:
    """a, b and c of 30 bytes each in 100, used at 0, 1 and 2 seconds."""
    budget: ByteBudget[str] = ByteBudget(100)
    for at, name in enumerate("abc"):
        assert isinstance(budget.adopt(name, 30, float(at)), Room)
    return budget


def test_the_longest_unused_goes_first() -> None:
    budget = filled()
    budget.touch("a", 9.0)
    assert budget.reserve("d", 30, 10.0) == Room(evict=("b",), reason="evicted 1")
    assert budget.held == ("a", "c")
    assert not budget.holds("d")
    assert budget.arrived("d", 25, 11.0) == Room(evict=(), reason="fits")
    assert budget.used_bytes == 85


def test_what_is_pinned_or_arriving_is_never_evicted() -> None:
    budget = filled()
    budget.pin("a")
    budget.pin("b")
    assert budget.reserve("d", 40, 5.0) == Room(evict=("c",), reason="evicted 1")
    refused = budget.reserve("e", 10, 5.0)
    assert refused == NoRoom(reason="10 bytes do not fit: 10 too many for the budget of 100, and the rest is in use")
    assert budget.held == ("a", "b")
    with pytest.raises(ValueError, match="pinned 1 times"):
        budget.drop("a")
    budget.unpin("a")
    budget.drop("a")


def test_what_the_assignment_wants_goes_last() -> None:
    budget = filled()
    budget.preferred = {"a", "b"}
    assert budget.reserve("d", 60, 5.0) == Room(evict=("c", "a"), reason="evicted 2")


def test_what_arrives_larger_than_announced_makes_its_room_or_leaves() -> None:
    budget = filled()
    budget.reserve("d", 10, 5.0)
    assert budget.arrived("d", 40, 6.0) == Room(evict=("a",), reason="evicted 1")
    budget.reserve("e", 1, 7.0)
    assert isinstance(budget.arrived("e", 101, 8.0), NoRoom)
    assert not budget.holds("e")
    assert budget.held == ("c", "d")
    assert budget.used_bytes == 70
    assert budget.broken_invariants() == []


def test_impossible_things_are_refused() -> None:
    budget = filled()
    with pytest.raises(ValueError, match="already there"):
        budget.reserve("a", 1, 0.0)
    with pytest.raises(ValueError, match="was not on its way"):
        budget.arrived("a", 1, 0.0)
    with pytest.raises(ValueError, match="not pinned"):
        budget.unpin("a")


def test_invariants_notice_what_is_broken() -> None:
    budget = filled()
    budget._used_bytes = 7
    budget._entries["a"].pins = -1
    budget._entries["b"].size_bytes = 1_000
    assert len(budget.broken_invariants()) == 3


class BudgetUnderRandomUse(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.budget: ByteBudget[int] = ByteBudget(100)
        self.now_s = 0.0
        self.arriving: set[int] = set()
        self.pins: list[int] = []

    @rule(name=st.integers(0, 8), size=st.integers(1, 60))
    def reserve(self, name: int, size: int) -> None:
        if self.budget.holds(name) or name in self.arriving:
            return
        self.now_s += 1.0
        if isinstance(self.budget.reserve(name, size, self.now_s), Room):
            self.arriving.add(name)

    @rule(size=st.integers(1, 120))
    def arrive(self, size: int) -> None:
        if self.arriving:
            name = self.arriving.pop()
            assert isinstance(self.budget.arrived(name, size, self.now_s), Room) == self.budget.holds(name)

    @rule(name=st.integers(0, 8))
    def pin(self, name: int) -> None:
        if self.budget.holds(name):
            self.budget.pin(name)
            self.pins.append(name)

    @rule()
    def unpin(self) -> None:
        if self.pins:
            self.budget.unpin(self.pins.pop())

    @rule(names=st.sets(st.integers(0, 8)))
    def prefer(self, names: set[int]) -> None:
        self.budget.preferred = names

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.budget.broken_invariants() == []
        assert all(self.budget.holds(name) for name in self.pins)
        assert all(self.budget.in_use(name) for name in self.arriving)


TestBudgetUnderRandomUse = BudgetUnderRandomUse.TestCase
TestBudgetUnderRandomUse.settings = settings(max_examples=100, stateful_step_count=50)
