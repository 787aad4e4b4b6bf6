"""A byte budget that is worth waiting for: some of what is in the way is so only for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from services.replica_worker.core.tiers import ByteBudget, NoRoom
from services.replica_worker.tiers.errors import AdapterUnavailable
from shared.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)


class Shelf(Generic[K]):
    """Keys that `reserve` and `arrived` return have left; their bytes are for the caller to remove."""

    def __init__(self, name: str, budget: ByteBudget[K], clock: Clock) -> None:
        self.budget = budget
        self._name = name
        self._clock = clock
        self._moved = asyncio.Event()

    async def reserve(self, key: K, size_bytes: int) -> tuple[K, ...]:
        """Room for something that is about to arrive, as soon as enough is no longer read or copied.

        Raises AdapterUnavailable if there cannot be enough; nothing changed then.
        """
        while isinstance(room := self.budget.reserve(key, size_bytes, self._clock.now_s()), NoRoom):
            if size_bytes > self.budget.budget_bytes or not self.budget.busy:
                raise AdapterUnavailable(f"there is no room {self._name}: {room.reason}")
            self._moved.clear()
            await self._moved.wait()
        return room.evict

    def arrived(self, key: K, size_bytes: int) -> tuple[K, ...]:
        """It is here. Raises AdapterUnavailable if it turned out too large; it is forgotten then."""
        room = self.budget.arrived(key, size_bytes, self._clock.now_s())
        self._moved.set()
        if isinstance(room, NoRoom):
            raise AdapterUnavailable(f"there is no room {self._name}: {room.reason}")
        return room.evict

    def cancel(self, key: K) -> None:
        """It does not arrive after all."""
        self.budget.drop(key)
        self._moved.set()

    def broke_off(self, key: K, size_bytes: int) -> None:
        """It does not arrive for now, and this much of it stays for the next attempt."""
        self.budget.broke_off(key, size_bytes, self._clock.now_s())
        self._moved.set()

    def touch(self, key: K) -> None:
        self.budget.touch(key, self._clock.now_s())

    @contextmanager
    def pinned(self, key: K) -> Iterator[None]:
        """It stays until the end of the block."""
        self.budget.pin(key)
        try:
            yield
        finally:
            self.budget.unpin(key)
            self._moved.set()
