"""A bus inside one process, with the semantics of the real one: for tests and simulations.

Everything crosses through the channel's codec, so no two services ever share an object.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from shared.bus.answers import answer_of, answer_to
from shared.bus.calls import Calls, Mailbox, Reading, bounded, read
from shared.bus.memory_events import Consumer, EventLog
from shared.bus.memory_state import Bucket, MemoryStore
from shared.bus.memory_subscriptions import Live, MemorySubscription, Question
from shared.bus.port import (
    BusUnavailable,
    DeadlineExceeded,
    Ids,
    NoResponders,
    OnHeard,
    OnMessage,
    OnUnanswered,
    OnUndecodable,
    OnUnheard,
)
from shared.contracts.channel import Channel, Kind, Service
from shared.contracts.codec import encode
from shared.contracts.permissions import PASSING, is_pooled, require_kind, require_reader, require_writer
from shared.contracts.streams import consumer_name

M = TypeVar("M")
R = TypeVar("R")


class MemoryBroker:
    """What several MemoryBus share. Cut one off with `disconnect`; nothing reaches it until `reconnect`."""

    def __init__(self) -> None:
        self.live: dict[str, list[Live]] = defaultdict(list)
        self.events: dict[str, EventLog] = defaultdict(EventLog)
        self.buckets: dict[str, Bucket] = defaultdict(Bucket)
        self.message_ids: set[str] = set()
        self._turn = 0

    def connect(self, service: str) -> MemoryBus:
        """A bus for one process of `service` (a value of contracts.channel.Service; else ValueError)."""
        return MemoryBus(self, Service(service))

    def disconnect(self, bus: MemoryBus) -> None:
        """As if its connection broke: its coroutines raise BusUnavailable, live messages pass it by."""
        bus.connected = False

    def reconnect(self, bus: MemoryBus) -> None:
        """Its watches are told everything again; its durables go on where they were."""
        bus.connected = True
        bus.connections += 1
        for bucket in self.buckets.values():
            for watch in bucket.watches:
                if watch.belongs_to(bus):
                    watch.tell_all()
        for log in self.events.values():
            log.wake()

    def takers(self, channel: Channel[Any, Any], ids: Ids) -> list[Live]:
        """Every matching subscription, but only one of each group, in turns."""
        matching = [live for live in self.live[channel.name] if live.matches(ids)]
        groups: dict[str, list[Live]] = defaultdict(list)
        for live in matching:
            groups[live.group].append(live)
        self._turn += 1
        alone = groups.pop("", [])
        return alone + [members[self._turn % len(members)] for members in groups.values()]

    def tell_unanswered(self, subject: str) -> None:
        """As the server does: an empty message on the subject that the answer would have come to."""
        for lives in self.live.values():
            for live in lives:
                if live.unanswered is not None and live.matches_subject(subject):
                    live.unanswered(live.channel.ids_of(subject))


class MemoryBus:
    """See shared.bus.port.Bus."""

    def __init__(self, broker: MemoryBroker, service: Service) -> None:
        self.connected = True
        self.connections = 1
        self._broker = broker
        self._service = service
        self._open: list[MemorySubscription] = []

    @property
    def hearing(self) -> bool:
        return self.connected

    async def close(self) -> None:
        for subscription in self._open:
            await subscription.close()
        self._open.clear()
        self.connected = False

    def require_connected(self) -> None:
        if not self.connected:
            raise BusUnavailable("the bus cannot be reached")

    def adopt(self, subscription: MemorySubscription) -> MemorySubscription:
        self._open.append(subscription)
        return subscription

    async def publish(
        self,
        channel: Channel[M, Any],
        message: M,
        *ids: str,
        message_id: str | None = None,
        answer_to: str | None = None,
    ) -> None:
        if channel.kind is not Kind.EVENT:
            self.send(channel, message, *ids, answer_to=answer_to)
            return
        self._store(channel, self._outgoing(channel, message, ids), message_id)

    def send(self, channel: Channel[M, Any], message: M, *ids: str, answer_to: str | None = None) -> None:
        require_kind(channel, *PASSING)
        payload = self._outgoing(channel, message, ids)
        takers = self._broker.takers(channel, ids)
        for taker in takers:
            taker.accept(payload, ids, None)
        if answer_to is not None and not takers:
            self._broker.tell_unanswered(answer_to)

    async def subscribe(
        self, channel: Channel[M, Any], on_message: OnMessage[M], *ids: str, on_unanswered: OnUnanswered = None
    ) -> MemorySubscription:
        require_kind(channel, *PASSING)
        self._require_listener(channel, ids)
        mailbox = Mailbox(f"subscription to {channel.name}")

        def accept(payload: bytes, found: Ids, question: Question | None) -> None:
            message = read(channel, payload)
            if message is not None:
                mailbox.put(on_message, message, found)

        def unanswered(found: Ids) -> None:
            if on_unanswered is not None:
                mailbox.put(on_unanswered, found)

        return self._listen(channel, ids, accept, mailbox.close, unanswered)

    async def hear(
        self, channel: Channel[M, Any], on_message: OnHeard[M], *ids: str, on_unanswered: OnUnheard = None
    ) -> MemorySubscription:
        """By a task after all: nobody is called from within a call of its own."""

        async def on_heard(message: M, found: Ids) -> None:
            on_message(message, found)

        async def told(found: Ids) -> None:
            if on_unanswered is not None:
                on_unanswered(found)

        return await self.subscribe(channel, on_heard, *ids, on_unanswered=told)

    async def consume(
        self,
        channel: Channel[M, Any],
        durable: str,
        on_message: OnMessage[M],
        *,
        on_undecodable: OnUndecodable | None = None,
        only_new: bool = False,
    ) -> MemorySubscription:
        require_kind(channel, Kind.EVENT)
        require_reader(self._service, channel)
        self.require_connected()
        calls = Calls(f"consumer {durable} of {channel.name}")
        reading = Reading(channel=channel, on_message=on_message, on_undecodable=on_undecodable)

        async def deal_with(payload: bytes) -> bool:
            call = reading.call_for(payload, ())
            return call is None or await calls.run(call)

        log = self._broker.events[channel.name].durable(consumer_name(channel, durable), only_new=only_new)
        consumer = Consumer(log, lambda: self.connected, deal_with)
        return self.adopt(MemorySubscription(detach=consumer.pause, end=partial(_end, calls, consumer.stop)))

    async def ask(self, channel: Channel[M, R], message: M, *ids: str, timeout_s: float) -> R:
        require_kind(channel, Kind.RPC)
        payload = self._outgoing(channel, message, ids)
        takers = self._broker.takers(channel, ids)
        if not takers:
            raise NoResponders(f"nobody serves {channel.subject(*ids)}")
        question = Question(self, asyncio.get_running_loop().create_future())
        for taker in takers:
            taker.accept(payload, ids, question)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await question.answer
        except TimeoutError:
            raise DeadlineExceeded(f"no answer on {channel.subject(*ids)} within {timeout_s} s") from None
        return answer_of(channel, answer)

    async def serve(
        self, channel: Channel[M, R], on_ask: Callable[[M, Ids], Awaitable[R]], *ids: str
    ) -> MemorySubscription:
        require_kind(channel, Kind.RPC)
        self._require_listener(channel, ids)
        calls = Calls(f"server of {channel.name}")

        async def reply(payload: bytes, found: Ids, question: Question | None) -> None:
            answer = await answer_to(channel, on_ask, payload, found)
            if question is not None:
                question.settle(self, answer)

        def accept(payload: bytes, found: Ids, question: Question | None) -> None:
            calls.spawn(reply, payload, found, question)

        return self._listen(channel, ids, accept, calls.end)

    def state(self, channel: Channel[M, Any]) -> MemoryStore[M]:
        require_kind(channel, Kind.STATE)
        require_reader(self._service, channel)
        return MemoryStore(self, self._service, channel, self._broker.buckets[channel.name])

    def _outgoing(self, channel: Channel[M, Any], message: M, ids: Ids) -> bytes:
        require_writer(self._service, channel)
        channel.subject(*ids)
        self.require_connected()
        return bounded(encode(channel, message))

    def _store(self, channel: Channel[M, Any], payload: bytes, message_id: str | None) -> None:
        if message_id is not None and message_id in self._broker.message_ids:
            return
        if message_id is not None:
            self._broker.message_ids.add(message_id)
        self._broker.events[channel.name].append(payload)

    def _require_listener(self, channel: Channel[Any, Any], ids: Ids) -> None:
        require_reader(self._service, channel)
        channel.pattern(*ids)
        self.require_connected()

    def _listen(
        self,
        channel: Channel[M, Any],
        ids: Ids,
        accept: Callable[[bytes, Ids, Question | None], None],
        end: Callable[[], Awaitable[None]],
        unanswered: Callable[[Ids], None] | None = None,
    ) -> MemorySubscription:
        group = self._service.value if is_pooled(self._service, channel) else ""
        live = Live(
            holder=self, channel=channel, prefix=ids, group=group, accept=accept, unanswered=unanswered
        )  # fmt: skip
        lives = self._broker.live[channel.name]
        lives.append(live)
        return self.adopt(MemorySubscription(detach=partial(lives.remove, live), end=end))


async def _end(calls: Calls, stop: Callable[[], Awaitable[None]]) -> None:
    await calls.end()
    await stop()
