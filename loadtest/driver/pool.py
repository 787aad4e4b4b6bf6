"""As many connections as there are streams at once, kept for those that come after them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from loadtest.driver.asking import Address
from loadtest.driver.connection import Connection


class Wish(Protocol):
    """Whoever wants a connection: `given` one, or `denied` it with a sentence. Never both, and neither once dropped."""

    def given(self, connection: Connection) -> None: ...

    def denied(self, reason: str) -> None: ...


class Pool:
    """At most `most` connections; who wants one more waits until one is free."""

    def __init__(self, address: Address, most: int) -> None:
        self._address = address
        self._most = most
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[Wish] = deque()
        self._empty = asyncio.Event()

    def want(self, wish: Wish) -> None:
        if self._idle:
            wish.given(self._idle.pop())
            return
        self._waiting.append(wish)
        self._open_more()

    def want_fresh(self, wish: Wish) -> None:
        """Before all others who wait, and not one of those that lie idle."""
        self._waiting.appendleft(wish)
        if self._idle and len(self._open) + len(self._opening) >= self._most:
            self._idle.pop(0).close()
        self._open_more()

    def drop(self, wish: Wish) -> None:
        """It does not want one any more."""
        if wish in self._waiting:
            self._waiting.remove(wish)

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in list(self._open):
            connection.close()
        if self._open:
            await self._empty.wait()

    def _open_more(self) -> None:
        """As many as wait, where there is room."""
        while len(self._waiting) > len(self._opening) and len(self._open) + len(self._opening) < self._most:
            task = asyncio.get_running_loop().create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._open_more()

    async def _connect(self) -> None:
        """The first who waits gets it, or hears why there is none."""
        where, loop = self._address, asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._free, self._gone), where.host, where.port, ssl=where.secure or None
            )
        except OSError as error:
            if self._waiting:
                self._waiting.popleft().denied(str(error))
            return
        self._open.add(connection)
        self._empty.clear()
        self._free(connection)

    def _free(self, connection: Connection) -> None:
        if self._waiting:
            self._waiting.popleft().given(connection)
        else:
            self._idle.append(connection)

    def _gone(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._empty.set()
        if connection in self._idle:
            self._idle.remove(connection)
        self._open_more()
