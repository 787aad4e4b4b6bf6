"""Following a key-value bucket: a fresh look at everything, then every change, over and over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from nats.aio.msg import Msg

from shared.bus.calls import Calls, read, stop
from shared.bus.nats_jetstream import OPERATION, create_consumer, position_of
from shared.bus.nats_link import Link, header, status_of
from shared.bus.port import BusUnavailable, Change, Ids
from shared.contracts.channel import Channel
from shared.contracts.streams import bucket_stream, key_prefix

M = TypeVar("M")

_NS = 1_000_000_000
HEARTBEAT_S = 5.0
SILENCE_S = 3 * HEARTBEAT_S
"""After which a watch no longer believes that nothing has changed."""

_PAUSE_S = 0.5

_log = logging.getLogger(__name__)


class Watch(Generic[M]):
    """Each look uses a throw-away consumer. It ends, and the next one begins, when a message is missing,
    when the server falls silent, and after every reconnect; nothing then depends on what the server kept."""

    def __init__(
        self, link: Link, channel: Channel[M, Any], ids: Ids, on_change: Callable[[Change[M]], Awaitable[None]]
    ) -> None:
        keys = channel.pattern(*ids).removeprefix(channel.stem + ".")
        self._link = link
        self._channel = channel
        self._prefix = key_prefix(channel)
        self._filter = self._prefix + keys
        self._on_change = on_change
        self._calls = Calls(f"watch of {channel.name}")
        self._told: dict[Ids, int] = {}
        """Revisions of the keys that have a value, as far as the watcher was told."""
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when everything has been told. Raises BusUnavailable."""
        self._task = asyncio.create_task(self._follow(), name=f"watch of {self._channel.name}")
        full = asyncio.create_task(self._full.wait())
        try:
            await asyncio.wait({self._task, full}, return_when=asyncio.FIRST_COMPLETED)
            if not self._full.is_set():
                await self._task
        except BaseException:
            await self.close()
            raise
        finally:
            full.cancel()

    async def close(self) -> None:
        await self._calls.end()
        await stop(self._task)

    async def _follow(self) -> None:
        while not self._calls.closed:
            try:
                await self._look()
            except (BusUnavailable, PermissionError) as error:
                if not self._full.is_set():
                    raise
                if self._link.connected:
                    _log.warning("watch of %s: %s", self._channel.name, error)
                await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        """From a new consumer's first message until it cannot be relied on any more."""
        arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        forget = self._link.on_reconnect(lambda: arrived.put_nowait(None))
        inbox = self._link.new_inbox()
        subscription = await self._link.subscribe(inbox, arrived.put)
        try:
            created = await create_consumer(self._link, bucket_stream(self._channel), self._consumer(inbox))
            await self._tell_all(arrived, created.total)
        finally:
            forget()
            await self._link.unsubscribe(subscription)

    async def _tell_all(self, arrived: asyncio.Queue[Msg | None], total: int) -> None:
        seen: set[Ids] = set()
        count = 0
        if total == 0:
            await self._complete(seen)
        while not self._calls.closed:
            message = await _next(arrived)
            if message is None:
                return
            if status_of(message):
                if header(message, "Nats-Last-Consumer") != str(count):
                    return
                continue
            position = position_of(message.reply)
            count += 1
            if position.consumer_sequence != count:
                return
            ids = tuple(message.subject[len(self._prefix) :].split("."))
            seen.add(ids)
            await self._tell(ids, message, position.stream_sequence)
            if count == total:
                await self._complete(seen)

    async def _complete(self, seen: set[Ids]) -> None:
        """Everything was told once: what was told before and not now is gone."""
        for ids in sorted(self._told.keys() - seen):
            await self._calls.run(self._on_change, Change(ids=ids, value=None, revision=self._told.pop(ids)))
        self._full.set()

    async def _tell(self, ids: Ids, message: Msg, revision: int) -> None:
        if header(message, OPERATION):
            if self._told.pop(ids, None) is not None:
                await self._calls.run(self._on_change, Change(ids=ids, value=None, revision=revision))
            return
        value = read(self._channel, message.data)
        if value is not None:
            self._told[ids] = revision
            await self._calls.run(self._on_change, Change(ids=ids, value=value, revision=revision))

    def _consumer(self, inbox: str) -> dict[str, Any]:
        return {
            "name": inbox.rsplit(".", 1)[1], "filter_subject": self._filter, "deliver_subject": inbox,
            "deliver_policy": "last_per_subject", "ack_policy": "none", "max_deliver": 1, "mem_storage": True,
            "num_replicas": 1, "idle_heartbeat": int(HEARTBEAT_S * _NS), "inactive_threshold": int(HEARTBEAT_S * _NS),
        }  # fmt: skip


async def _next(arrived: asyncio.Queue[Msg | None]) -> Msg | None:
    """The next message; None if the connection was lost or the server fell silent."""
    if not arrived.empty():
        return arrived.get_nowait()
    try:
        return await asyncio.wait_for(arrived.get(), SILENCE_S)
    except TimeoutError:
        return None
