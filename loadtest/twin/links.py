"""What an adapter passes on its way: serial links, gates, and budgets of bytes that are worth waiting for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from services.replica_worker.core.tiers import ByteBudget, NoRoom

K = TypeVar("K", bound=Hashable)


class Link:
    """One transfer after the other. `factor` above 1 makes those slower that begin from now on."""

    def __init__(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        self.factor = 1.0
        self._bytes_per_s = bytes_per_s
        self._latency_s = latency_s
        self._free_at_s = 0.0

    def take(self, now_s: float, size_bytes: int) -> float:
        """When a transfer that is asked for now will be over."""
        begins_s = max(now_s + self._latency_s * self.factor, self._free_at_s)
        self._free_at_s = begins_s + size_bytes * self.factor / self._bytes_per_s
        return self._free_at_s


class Gate:
    """At most so many at once; the others wait in their order."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[Callable[[], None]] = deque()

    def enter(self, go: Callable[[], None]) -> None:
        if self._free:
            self._free -= 1
            go()
        else:
            self._waiting.append(go)

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class Shelf(Generic[K]):
    """A byte budget that is worth waiting for, while some of it is in use for a moment only."""

    def __init__(self, budget: ByteBudget[K]) -> None:
        self.budget = budget
        self._waiting: list[Callable[[], None]] = []

    def reserve(
        self, key: K, size_bytes: int, now_s: Callable[[], float], then: Callable[[tuple[K, ...] | str], None]
    ) -> None:
        """`then` gets what was evicted, or why there cannot be room."""
        room = self.budget.reserve(key, size_bytes, now_s())
        if not isinstance(room, NoRoom):
            then(room.evict)
        elif size_bytes > self.budget.budget_bytes or not self.budget.busy:
            then(room.reason)
        else:
            self._waiting.append(lambda: self.reserve(key, size_bytes, now_s, then))

    def moved(self) -> None:
        """Somebody is done with something."""
        waiting, self._waiting = self._waiting, []
        for again in waiting:
            again()
