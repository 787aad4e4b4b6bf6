"""One waits, and others wake it."""

from __future__ import annotations

import asyncio


class Bell:
    """asyncio.Event for a single waiter: a tenth of its size, of which thousands of open streams have one each."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        return self._rung

    def set(self) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._rung = False

    async def wait(self) -> None:
        """Returns once it was set, even if it was cleared again meanwhile."""
        if self._rung:
            return
        assert self._waiter is None, "one waits at a time"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
