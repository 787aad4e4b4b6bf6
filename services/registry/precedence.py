"""A batch of registrations goes first: who attends to what may wait is told when one is under way, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BATCH = 4
"""So many at once are a batch; fewer are in nobody's way."""
_LULL_S = 0.1
"""For so long there may be fewer in the middle of a batch: its sender is on its way with the next ones."""


class Precedence:
    """Of this process: another registry on the same database has its own."""

    def __init__(self) -> None:
        self.batch = False
        """Whether one is under way."""
        self._under_way = 0
        self._on_end: list[Callable[[], None]] = []

    def follow(self, on_end: Callable[[], None]) -> None:
        """It is called after the end of every batch from now on."""
        self._on_end.append(on_end)

    @contextmanager
    def going(self) -> Iterator[None]:
        """For as long as an upload or a registration is under way."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        self._under_way += more
        if self._under_way >= _BATCH:
            self.batch = True
        elif self.batch and more < 0:
            asyncio.get_running_loop().call_later(_LULL_S, self._look)

    def _look(self) -> None:
        if self.batch and self._under_way < _BATCH:
            self.batch = False
            for on_end in self._on_end:
                on_end()
