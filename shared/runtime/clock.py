"""Time as a thing that is passed in, so that a test or a simulation can hold it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol

_TURNS = 20
"""How often other tasks get their turn after each wake-up of a ManualClock: enough for a chain of awaits."""


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds from an arbitrary start; never goes back. For durations and deadlines."""

    def wall_s(self) -> float:
        """Seconds since 1970, for people and for records. May jump."""

    async def sleep_s(self, seconds: float) -> None:
        """Return once `now_s` has advanced by `seconds`; at zero or less, give others a turn."""


class SystemClock:
    def now_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    async def sleep_s(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until it is advanced. `wall_s` runs along with `now_s`."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return self._now_s

    @property
    def next_wake_s(self) -> float | None:
        """When the first sleeper is due, or None if nobody sleeps."""
        return min((at_s for at_s, _, wake in self._sleepers if not wake.done()), default=None)

    async def sleep_s(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers one by one in order of their time; each sees its own time as now and
        has run on (it may sleep again, and be woken again) before the next one wakes."""
        until_s = self._now_s + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= until_s:
            at_s, _, wake = heapq.heappop(self._sleepers)
            if wake.done():
                continue
            self._now_s = at_s
            wake.set_result(None)
            await _settle()
        self._now_s = until_s


async def _settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
