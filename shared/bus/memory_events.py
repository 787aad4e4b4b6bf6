"""The facts of a MemoryBroker and who has dealt with them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from shared.bus.calls import stop
from shared.contracts.streams import redelivery_delay_s


class EventLog:
    """Every fact of one channel, in order."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._durables: dict[str, Durable] = {}

    def append(self, payload: bytes) -> None:
        self._payloads.append(payload)
        for durable in self._durables.values():
            durable.offer(payload)

    def wake(self) -> None:
        """Somebody may take something again."""
        for durable in self._durables.values():
            durable.wake()

    def durable(self, name: str, *, only_new: bool = False) -> Durable:
        """One that is new starts with the oldest fact, or after the latest."""
        if name not in self._durables:
            self._durables[name] = Durable([] if only_new else self._payloads)
        return self._durables[name]


class Durable:
    """The facts that those who share a name have not dealt with yet, each with its number of attempts."""

    def __init__(self, payloads: list[bytes]) -> None:
        self._waiting = deque((payload, 1) for payload in payloads)
        self._changed = asyncio.Event()

    def offer(self, payload: bytes) -> None:
        self._waiting.append((payload, 1))
        self._changed.set()

    def wake(self) -> None:
        """Let those who wait look again whether they may take something."""
        self._changed.set()

    async def take(self, may_take: Callable[[], bool]) -> tuple[bytes, int]:
        while not (self._waiting and may_take()):
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()

    def give_back(self, payload: bytes, attempt: int) -> None:
        """Somebody took it and went away: it is the next one's."""
        self._waiting.appendleft((payload, attempt))
        self._changed.set()

    def retry(self, payload: bytes, attempt: int) -> None:
        """It failed: it comes again after a while, and the others do not wait for it."""
        again = (payload, attempt + 1)
        asyncio.get_running_loop().call_later(redelivery_delay_s(attempt), self._reoffer, again)

    def _reoffer(self, again: tuple[bytes, int]) -> None:
        self._waiting.append(again)
        self._changed.set()


class Consumer:
    """One process that takes from a durable, one message after another.

    `deal_with` returns whether the message is done with; otherwise it comes again.
    """

    def __init__(
        self, durable: Durable, may_take: Callable[[], bool], deal_with: Callable[[bytes], Awaitable[bool]]
    ) -> None:
        self._durable = durable
        self._paused = False
        self._may_take = may_take
        self._deal_with = deal_with
        self._task = asyncio.create_task(self._run())

    def pause(self) -> None:
        """Take nothing more."""
        self._paused = True

    async def stop(self) -> None:
        await stop(self._task)

    async def _run(self) -> None:
        while not self._paused:
            payload, attempt = await self._durable.take(lambda: self._may_take() and not self._paused)
            try:
                done = await self._deal_with(payload)
            except asyncio.CancelledError:
                self._durable.give_back(payload, attempt)
                raise
            if not done:
                self._durable.retry(payload, attempt)
