"""Events from a durable consumer of the stream: pulled one by one, acknowledged when dealt with."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Generic, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.bus.calls import Calls, Reading, stop
from shared.bus.nats_jetstream import create_consumer, position_of
from shared.bus.nats_link import Link, status_of
from shared.bus.port import BusUnavailable
from shared.contracts.channel import Channel
from shared.contracts.streams import ACK_WAIT_S, consumer_name, redelivery_delay_s, stream_of

M = TypeVar("M")

_NS = 1_000_000_000
_PULL_S = 30.0
_PAUSE_S = 0.5
NEW_UNUSED_S = 300.0
_NOTHING_CAME = ("404", "408")

_log = logging.getLogger(__name__)


def consumer_config(channel: Channel[Any, Any], durable: str, *, only_new: bool = False) -> dict[str, Any]:
    """A consumer that nobody uses for as long as facts are kept is of no use to anybody; one that wanted only what
    is new is of none after an outage that its user gave up on."""
    name = consumer_name(channel, durable)
    unused_s = NEW_UNUSED_S if only_new else stream_of(channel).max_age_s
    return {
        "name": name, "durable_name": name, "filter_subject": channel.wildcard,
        "deliver_policy": "new" if only_new else "all",
        "ack_policy": "explicit", "ack_wait": int(ACK_WAIT_S * _NS), "max_deliver": -1,
        "replay_policy": "instant", "inactive_threshold": int(unused_s * _NS),
    }  # fmt: skip


class Consumption(Generic[M]):
    """Survives the loss of the connection and of the consumer itself."""

    def __init__(self, link: Link, config: dict[str, Any], reading: Reading[M]) -> None:
        self._link = link
        self._reading = reading
        self._channel = channel = reading.channel
        self._config = config
        self._stream = channel.stream.value
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._config['name']}"
        self._calls = Calls(f"consumer {config['name']} of {channel.name}")
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        """None stands for "the connection was lost, ask again"."""
        self._inbox = link.new_inbox()
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._forget = link.on_reconnect(lambda: self._arrived.put_nowait(None))

    async def start(self) -> None:
        await create_consumer(self._link, self._stream, self._config)
        self._subscription = await self._link.subscribe(self._inbox, self._arrived.put)
        self._task = asyncio.create_task(self._run(), name=f"consumer of {self._channel.name}")

    async def close(self) -> None:
        self._forget()
        await self._calls.end()
        if self._subscription is not None:
            await self._link.unsubscribe(self._subscription)
        await stop(self._task)
        await self._give_back()

    async def _give_back(self) -> None:
        """What was on its way while we left is for others, at once."""
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message is not None and not status_of(message) and self._link.connected:
                await self._link.publish(message.reply, b"-NAK")

    async def _run(self) -> None:
        while not self._calls.closed:
            try:
                await self._deal_with_next()
            except (BusUnavailable, PermissionError) as error:
                if self._link.connected:
                    _log.warning("consumer of %s: %s", self._channel.name, error)
                await asyncio.sleep(_PAUSE_S)

    async def _deal_with_next(self) -> None:
        pull = msgspec.json.encode({"batch": 1, "expires": int(_PULL_S * _NS)})
        if self._arrived.empty():
            await self._link.publish(self._next_subject, pull, self._inbox)
        try:
            message = await asyncio.wait_for(self._arrived.get(), _PULL_S + 1.0)
        except TimeoutError:
            return
        if message is None or status_of(message) in _NOTHING_CAME:
            return
        if status_of(message):
            await asyncio.sleep(_PAUSE_S)
            await create_consumer(self._link, self._stream, self._config)
            return
        await self._deal_with(message)

    async def _deal_with(self, message: Msg) -> None:
        call = self._reading.call_for(message.data, self._channel.ids_of(message.subject))
        if call is None:
            await self._link.publish(message.reply, b"+TERM")
            return
        renewing = asyncio.create_task(self._renew(message.reply))
        try:
            done = await self._calls.run(call)
        except asyncio.CancelledError:
            await self._link.publish(message.reply, b"-NAK")
            raise
        finally:
            renewing.cancel()
        delay_ns = int(redelivery_delay_s(position_of(message.reply).attempt) * _NS)
        await self._link.publish(message.reply, b"+ACK" if done else b'-NAK {"delay": %d}' % delay_ns)

    async def _renew(self, reply: str) -> None:
        """Tell the server that the handler is still at work."""
        while True:
            await asyncio.sleep(ACK_WAIT_S / 3)
            if self._link.connected:
                await self._link.publish(reply, b"+WPI")
