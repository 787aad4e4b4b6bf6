"""The bus over NATS: core publish and subscribe for the moment, JetStream for what must stay."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nats.aio.msg import Msg

from shared.bus.answers import answer_of, answer_to
from shared.bus.calls import Calls, Reading, bounded, read
from shared.bus.nats_events import Consumption, consumer_config
from shared.bus.nats_jetstream import MESSAGE_ID, store
from shared.bus.nats_link import BusOptions, Link, header, status_of
from shared.bus.nats_listening import NO_RESPONDERS, Hearing, Listening
from shared.bus.nats_state import NatsStore
from shared.bus.port import (
    BusUnavailable,
    Ids,
    OnHeard,
    OnMessage,
    OnUnanswered,
    OnUndecodable,
    OnUnheard,
    Subscription,
)
from shared.contracts.channel import Channel, Kind, Service
from shared.contracts.codec import encode
from shared.contracts.permissions import PASSING, is_pooled, require_kind, require_reader, require_writer

__all__ = ["BusOptions", "NatsBus", "connect"]

M = TypeVar("M")
R = TypeVar("R")

_FAILURE = "lf-error"

_log = logging.getLogger(__name__)


async def connect(options: BusOptions) -> NatsBus:
    """Raises BusUnavailable with one sentence after a few seconds; once connected, it reconnects for ever."""
    service = Service(options.user)
    link = Link(options)
    await link.open()
    return NatsBus(link, service)


class NatsBus:
    """See shared.bus.port.Bus."""

    def __init__(self, link: Link, service: Service) -> None:
        self._link = link
        self._service = service
        self._open: list[Subscription] = []

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def hearing(self) -> bool:
        return self._link.hearing

    @property
    def connections(self) -> int:
        return self._link.connections

    async def close(self) -> None:
        for subscription in self._open:
            await subscription.close()
        self._open.clear()
        await self._link.close()

    async def publish(
        self,
        channel: Channel[M, Any],
        message: M,
        *ids: str,
        message_id: str | None = None,
        answer_to: str | None = None,
    ) -> None:
        if channel.kind is not Kind.EVENT:
            self._send(channel, message, ids, answer_to, urgent=False)
            await self._link.room()
            return
        require_writer(self._service, channel)
        payload = bounded(encode(channel, message))
        headers = None if message_id is None else {MESSAGE_ID: message_id}
        await store(self._link, channel.subject(*ids), payload, headers)

    def send(self, channel: Channel[M, Any], message: M, *ids: str, answer_to: str | None = None) -> None:
        self._send(channel, message, ids, answer_to, urgent=True)

    async def subscribe(
        self, channel: Channel[M, Any], on_message: OnMessage[M], *ids: str, on_unanswered: OnUnanswered = None
    ) -> Subscription:
        require_kind(channel, *PASSING)
        calls = Calls(f"subscription to {channel.name}")

        async def on_nats_message(message: Msg) -> None:
            if message.headers and status_of(message):
                if on_unanswered is not None and status_of(message) == NO_RESPONDERS:
                    await calls.run(on_unanswered, channel.ids_of(message.subject))
                return
            content = read(channel, message.data)
            if content is not None:
                await calls.run(on_message, content, channel.ids_of(message.subject))

        return await self._listen(channel, ids, calls, on_nats_message)

    async def hear(
        self, channel: Channel[M, Any], on_message: OnHeard[M], *ids: str, on_unanswered: OnUnheard = None
    ) -> Subscription:
        require_kind(channel, *PASSING)
        require_reader(self._service, channel)
        hearing = Hearing(self._link, channel, on_message, on_unanswered)
        await hearing.start(channel.pattern(*ids), self._group(channel))
        return self._adopt(hearing)

    async def consume(
        self,
        channel: Channel[M, Any],
        durable: str,
        on_message: OnMessage[M],
        *,
        on_undecodable: OnUndecodable | None = None,
        only_new: bool = False,
    ) -> Subscription:
        require_kind(channel, Kind.EVENT)
        require_reader(self._service, channel)
        reading = Reading(channel=channel, on_message=on_message, on_undecodable=on_undecodable)
        consumption = Consumption(self._link, consumer_config(channel, durable, only_new=only_new), reading)
        await consumption.start()
        return self._adopt(consumption)

    async def ask(self, channel: Channel[M, R], message: M, *ids: str, timeout_s: float) -> R:
        require_kind(channel, Kind.RPC)
        require_writer(self._service, channel)
        reply = await self._link.request(channel.subject(*ids), bounded(encode(channel, message)), timeout_s)
        return answer_of(channel, header(reply, _FAILURE) or reply.data)

    async def serve(self, channel: Channel[M, R], on_ask: Callable[[M, Ids], Awaitable[R]], *ids: str) -> Subscription:
        require_kind(channel, Kind.RPC)
        calls = Calls(f"server of {channel.name}")

        async def reply(message: Msg) -> None:
            answer = await answer_to(channel, on_ask, message.data, channel.ids_of(message.subject))
            if message.reply:
                await self._answer(message.reply, answer)

        async def on_nats_message(message: Msg) -> None:
            calls.spawn(reply, message)

        return await self._listen(channel, ids, calls, on_nats_message)

    def state(self, channel: Channel[M, Any]) -> NatsStore[M]:
        require_kind(channel, Kind.STATE)
        require_reader(self._service, channel)
        return NatsStore(self._link, self._service, channel, self._adopt)

    def _send(self, channel: Channel[M, Any], message: M, ids: Ids, answer_to: str | None, *, urgent: bool) -> None:
        require_kind(channel, *PASSING)
        require_writer(self._service, channel)
        payload = bounded(encode(channel, message))
        self._link.send(channel.subject(*ids), payload, answer_to or "", urgent=urgent)

    async def _answer(self, reply: str, answer: bytes | str) -> None:
        try:
            if isinstance(answer, str):
                await self._link.publish(reply, b"", headers={_FAILURE: answer})
            else:
                await self._link.publish(reply, answer)
        except BusUnavailable as error:
            _log.warning("an answer was lost: %s", error)

    async def _listen(
        self, channel: Channel[Any, Any], ids: Ids, calls: Calls, on_nats_message: Callable[[Msg], Awaitable[None]]
    ) -> Subscription:
        require_reader(self._service, channel)
        listening = Listening(self._link, calls, on_nats_message)
        await listening.start(channel.pattern(*ids), self._group(channel))
        return self._adopt(listening)

    def _group(self, channel: Channel[Any, Any]) -> str:
        return self._service.value if is_pooled(self._service, channel) else ""

    def _adopt(self, subscription: Subscription) -> Subscription:
        self._open.append(subscription)
        return subscription
