"""A sum over the last 60 seconds, by slots of one second."""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.core.allowance import WINDOW_SLOTS


class Window:
    """What one gateway let in itself, by its own clock. Slots come in any order, and may be corrected later."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._sum = 0
        self._oldest = 0

    def add(self, slot: int, count: int) -> None:
        self._slots[slot] = self._slots.get(slot, 0) + count
        self._sum += count

    def used(self, now_s: float) -> int:
        self._forget(int(now_s))
        return self._sum

    def slots(self, now_s: float) -> Mapping[int, int]:
        self._forget(int(now_s))
        return self._slots

    def rate_per_s(self, now_s: float) -> float:
        """The most of the second under way and the two before it."""
        slot, count = int(now_s), self._slots.get
        return float(max(count(slot, 0), count(slot - 1, 0), count(slot - 2, 0)))

    def wait_s(self, count: int, limit: int, now_s: float) -> float:
        """Until so much more fits, if nothing else comes; 0: it does."""
        free = limit - self.used(now_s)
        if free >= count:
            return 0.0
        for slot in sorted(self._slots):
            free += self._slots[slot]
            if free >= count:
                return slot + WINDOW_SLOTS + 1 - now_s
        return self.reset_s(now_s)

    def reset_s(self, now_s: float) -> float:
        """Until nothing is used any more."""
        newest = max((slot for slot, count in self.slots(now_s).items() if count > 0), default=None)
        return 0.0 if newest is None else newest + WINDOW_SLOTS + 1 - now_s

    def _forget(self, slot: int) -> None:
        oldest = slot - WINDOW_SLOTS
        if oldest <= self._oldest:
            return
        self._oldest = oldest
        for old in [each for each in self._slots if each < oldest]:
            self._sum -= self._slots.pop(old)
