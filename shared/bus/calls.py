"""Handler calls: guarded, so that a bad handler costs one message, and ended in an orderly way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from shared.bus.port import Ids, OnMessage, OnUndecodable
from shared.contracts.channel import Channel
from shared.contracts.codec import BadMessage, decode
from shared.contracts.streams import MAX_MESSAGE_BYTES

M = TypeVar("M")

GRACE_S = 1.0
"""How long closing a subscription waits for calls that already run before it cancels them."""

_log = logging.getLogger(__name__)


def read(channel: Channel[M, Any], payload: bytes) -> M | None:
    """The message, or None (logged) if the bytes are not one of this channel."""
    try:
        return decode(channel, payload)
    except BadMessage as error:
        _log.error("dropped a message: %s", error)
        return None


def heard(channel: Channel[Any, Any], call: Callable[..., None], *arguments: object) -> None:
    """Call now; what it raises is logged."""
    try:
        call(*arguments)
    except Exception:
        _log.exception("handler of what is heard on %s failed", channel.name)


@dataclass(frozen=True, kw_only=True)
class Reading(Generic[M]):
    """What a consumer does with the bytes it gets."""

    channel: Channel[M, Any]
    on_message: OnMessage[M]
    on_undecodable: OnUndecodable | None

    def call_for(self, payload: bytes, ids: Ids) -> Callable[[], Awaitable[None]] | None:
        """The call to make, or None (logged) for bytes that nobody wants to see."""
        try:
            return partial(self.on_message, decode(self.channel, payload), ids)
        except BadMessage as error:
            if self.on_undecodable is not None:
                return partial(self.on_undecodable, payload, error.reason)
            _log.error("dropped a message: %s", error)
            return None


def bounded(payload: bytes) -> bytes:
    """Raises ValueError for a message larger than the bus carries."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message of {len(payload)} bytes is larger than the {MAX_MESSAGE_BYTES} that the bus carries"
        )
    return payload


class Calls:
    """The calls of one subscription. `closed` turns true at the start of `end`; nothing starts after it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()
        self.closed = False

    async def run(self, call: Callable[..., Awaitable[None]], *arguments: object) -> bool:
        """Call now. True if it returned, False if it raised (which is logged) or nothing was called."""
        if self.closed:
            return False
        task = _current()
        self._running.add(task)
        try:
            await call(*arguments)
        except asyncio.CancelledError:
            # Something inside was cancelled, which must not end the subscription; our own cancellation must.
            if task.cancelling():
                raise
            _log.exception("handler of %s was cancelled from inside", self._name)
            return False
        except Exception:
            _log.exception("handler of %s failed", self._name)
            return False
        finally:
            self._running.discard(task)
            self._ended.set()
        return True

    def spawn(self, call: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Call in a task of its own, concurrently with the others."""
        if not self.closed:
            task = asyncio.create_task(self._spawned(call, *arguments), name=self._name)
            self._running.add(task)

    async def end(self) -> None:
        """Let no call start, wait a moment for those that run, cancel the rest. Never waits for its caller."""
        self.closed = True
        own = _current()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self._running - {own}:
                    self._ended.clear()
                    await self._ended.wait()
        for task in self._running - {own}:
            task.cancel()

    async def _spawned(self, call: Callable[..., Awaitable[None]], *arguments: object) -> None:
        self._running.discard(_current())
        await self.run(call, *arguments)
        self._ended.set()


class Mailbox:
    """Calls made one after another, in the order of arrival, by a task of their own."""

    def __init__(self, name: str) -> None:
        self._calls = Calls(name)
        self._waiting: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._pump(), name=name)

    def put(self, call: Callable[..., Awaitable[None]], *arguments: object) -> None:
        if not self._calls.closed:
            self._waiting.put_nowait(partial(call, *arguments))

    async def reached(self) -> None:
        """Returns when every call put in before has been made."""
        event = asyncio.Event()
        self.put(_set, event)
        await event.wait()

    async def close(self) -> None:
        """No call starts after this. Idempotent."""
        await self._calls.end()
        await stop(self._task)

    async def _pump(self) -> None:
        while not self._calls.closed:
            await self._calls.run(await self._waiting.get())


async def stop(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it is over; one that stops itself must see to its own end."""
    if task is not None and task is not _current():
        task.cancel()
        await asyncio.wait({task})


async def _set(event: asyncio.Event) -> None:
    event.set()


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
