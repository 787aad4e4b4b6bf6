"""Core subscriptions: by a task that may wait, or by a function that is called as the bytes come in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from shared.bus.calls import Calls, heard, read
from shared.bus.nats_link import Link, status_of
from shared.bus.port import Ids, OnHeard
from shared.contracts.channel import Channel

M = TypeVar("M")

NO_RESPONDERS = "503"


class Listening:
    """By a task of its own."""

    def __init__(self, link: Link, calls: Calls, on_nats_message: Callable[[Msg], Awaitable[None]]) -> None:
        self._link = link
        self._calls = calls
        self._on_nats_message = on_nats_message
        self._subscription: NatsSubscription | None = None
        self._pump: asyncio.Task[None] | None = None

    async def start(self, pattern: str, group: str) -> None:
        self._subscription = await self._link.subscribe(pattern, self._take, group)

    async def close(self) -> None:
        await self._calls.end()
        if asyncio.current_task() is not self._pump:
            await self._leave()

    async def _take(self, message: Msg) -> None:
        self._pump = asyncio.current_task()
        await self._on_nats_message(message)
        if self._calls.closed:
            # Closed by its own handler: leaving cancels this task, so it had to wait for the handler's end.
            await self._leave()

    async def _leave(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._link.unsubscribe(subscription)


class Hearing(Generic[M]):
    """By no task."""

    def __init__(
        self,
        link: Link,
        channel: Channel[M, Any],
        on_message: OnHeard[M],
        on_unanswered: Callable[[Ids], None] | None,
    ) -> None:
        self._link = link
        self._channel = channel
        self._on_message = on_message
        self._on_unanswered = on_unanswered
        self._subscription: NatsSubscription | None = None
        self._closed = False

    async def start(self, pattern: str, group: str) -> None:
        self._subscription = await self._link.subscribe(pattern, self._take_status, group, self._take)

    async def close(self) -> None:
        self._closed = True
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._link.unsubscribe(subscription)

    def _take(self, subject: str, payload: bytes) -> None:
        if not self._closed and (message := read(self._channel, payload)) is not None:
            heard(self._channel, self._on_message, message, self._channel.ids_of(subject))

    async def _take_status(self, message: Msg) -> None:
        if not status_of(message):
            self._take(message.subject, message.data)
        elif not self._closed and self._on_unanswered is not None and status_of(message) == NO_RESPONDERS:
            heard(self._channel, self._on_unanswered, self._channel.ids_of(message.subject))
