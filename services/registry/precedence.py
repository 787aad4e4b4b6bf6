"""A batch of registrations goes first: what may wait gives way while one is under way, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shared.runtime.clock import Clock

_BATCH = 4
"""So many at once are a batch; fewer are in nobody's way."""
_LULL_S = 0.1
"""For so long there may be fewer in the middle of a batch: its sender is on its way with the next ones."""


class Precedence:
    """`give_way_s` is the longest that anything gives way, counted from when it was ready to begin."""

    def __init__(self, clock: Clock, give_way_s: float) -> None:
        self._clock = clock
        self._give_way_s = give_way_s
        self._under_way = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def going(self) -> Iterator[None]:
        """For as long as an upload or a registration is under way."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    async def give_way(self, ready_at_s: float) -> None:
        """Returns once no batch is under way, or when whoever was ready then (`wall_s`) has waited for long enough."""
        left_s = ready_at_s + self._give_way_s - self._clock.wall_s()
        if left_s <= 0 or self._free.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, self._give_way_s)):
                await self._free.wait()

    def _count(self, more: int) -> None:
        self._under_way += more
        if self._under_way >= _BATCH:
            self._free.clear()
        elif not self._free.is_set() and more < 0:
            asyncio.get_running_loop().call_later(_LULL_S, self._look)

    def _look(self) -> None:
        if self._under_way < _BATCH:
            self._free.set()
