"""The requests under way: hears something, lets the cores decide, applies it. Nothing in here waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.gateway.cancels import Cancels
from services.gateway.conversation import Conversation, Desk
from services.gateway.core import endings, failover, streams
from services.gateway.core.frames import youngest_first
from services.gateway.core.question import Choice, NoChoice
from services.gateway.core.refusal import OUT_OF_TOUCH, Refusal
from services.gateway.core.stream import (
    Abandon,
    Action,
    Ask,
    Deliver,
    Fail,
    Open,
    Reroute,
    Step,
    Stream,
    Wait,
)
from services.gateway.delivery import Delivery
from services.gateway.repeats import Repeats
from shared.messages.generation import Accepted, Answer, Queued, Refused, TokenChunk

_OUT_OF_TOUCH = NoChoice(reason=OUT_OF_TOUCH, may_change=True, code="not_ready")


class Conversations:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._live: dict[str, Conversation] = {}
        self._waiting: list[Conversation] = []
        self._cancels = Cancels(desk.post)
        self._repeats = Repeats(desk)
        self._delivery = Delivery(desk.records, desk.clock)

    def __len__(self) -> int:
        return len(self._live) + len(self._waiting)

    def begin(self, conversation: Conversation) -> None:
        """It is counted once it was asked, as everything that a replica need not wait for; and if that fails as well,
        since it is to end then."""
        try:
            conversation.begin_span(self._desk)
            self._apply(conversation, self._route(conversation))
        finally:
            self._desk.records.streams.inc()
            self._desk.records.began(conversation.record)

    def leave(self, conversation: Conversation, reason: str) -> None:
        """The client is gone. Does nothing once the conversation is over."""
        self._apply(conversation, endings.left(conversation.stream, reason))

    def drop(self, conversation: Conversation, reason: str) -> None:
        """Another answer to the same request failed, so this one is of no use. Does nothing once it is over."""
        self._apply(conversation, endings.dropped(conversation.stream, reason))

    def shut_down(self) -> None:
        """End every request with an error that says so."""
        for conversation in [*self._live.values(), *self._waiting]:
            self._apply(conversation, endings.shut_down(conversation.stream))

    def on_answer(self, answer: Answer) -> None:
        conversation = self._live.get(answer.request_id)
        if conversation is None:
            return
        now_s, policy = self._desk.clock.now_s(), self._desk.policies.streams
        self._desk.routing.heard(answer, conversation.stream.adapter, now_s)
        match answer:
            case Queued():
                self._desk.fleet.sends(answer.replica_id).answered(answer.request_id)
                self._apply(conversation, streams.queued(conversation.stream, answer, now_s))
            case Accepted():
                self._desk.fleet.sends(answer.replica_id).answered(answer.request_id)
                self._apply(conversation, streams.accepted(conversation.stream, answer, policy, now_s))
            case Refused():
                self._apply(conversation, streams.refused(conversation.stream, answer, policy, now_s))

    def on_unanswered(self, bus_id: str) -> None:
        if (conversation := self._live.get(bus_id)) is not None:
            now_s, policy = self._desk.clock.now_s(), self._desk.policies.streams
            self._desk.fleet.on_unanswered(conversation.stream.replica_id)
            if not self._repeats.unheard(conversation):
                self._apply(conversation, failover.unanswered(conversation.stream, bus_id, policy, now_s))

    def on_chunks(self, replica_id: str, chunks: Iterable[TokenChunk]) -> None:
        """One frame of a replica."""
        now_s, policies = self._desk.clock.now_s(), self._desk.policies
        live, go_on = self._live.get, self._delivery.go_on
        for chunk in youngest_first(chunks):
            conversation = live(chunk.request_id)
            if conversation is None:
                self._cancels.stray(replica_id, chunk, now_s)
                continue
            if conversation.goes_on(chunk, now_s):
                go_on(conversation, chunk, now_s)
            else:
                self._apply(conversation, streams.chunk(conversation.stream, chunk, policies.streams, now_s))
            if conversation.outlet.waiting_bytes > policies.most_waiting_bytes and conversation.wish.stream:
                self._apply(conversation, endings.overflowed(conversation.stream, policies.most_waiting_bytes))

    def break_off(self, replica_id: str, reason: str, is_broken: Callable[[Stream], bool], *, died: bool) -> None:
        """Those streams of a replica for which `is_broken` holds will hear nothing more of use from it, because it
        `died` or although it lives."""
        now_s, policy = self._desk.clock.now_s(), self._desk.policies.streams
        over = failover.lost if died else failover.given_up
        for conversation in list(self._live.values()):
            if conversation.replica_id == replica_id and is_broken(conversation.stream):
                self._apply(conversation, over(conversation.stream, reason, policy, now_s))

    def replicas(self) -> set[str]:
        """Those that work on something for this gateway."""
        return {conversation.replica_id for conversation in self._live.values()}

    def tick(self) -> None:
        """Deadlines, and another look for those whom nobody could serve or hear."""
        now_s, policy = self._desk.clock.now_s(), self._desk.policies.streams
        self._repeats.tick(self._live.values())
        waiting, self._waiting = self._waiting, []
        for conversation in waiting:
            self._apply(conversation, self._route(conversation))
        for conversation in list(self._live.values()):
            if not conversation.flows(now_s, policy.stall_s):
                self._apply(conversation, streams.tick(conversation.stream, policy, now_s))
        self._cancels.forget_old(now_s)

    def _apply(self, conversation: Conversation, step: Step) -> None:
        conversation.stream, actions = step
        for action in actions:
            self._act(conversation, action)

    def _act(self, conversation: Conversation, action: Action) -> None:
        match action:
            case Deliver():
                self._delivery.deliver(conversation, action)
            case Open():
                self._delivery.open(conversation, action.accepted)
            case Ask():
                self._ask(conversation, action)
            case Abandon():
                self._abandon(action)
            case Wait():
                self._waiting.append(conversation)
            case Reroute():
                self._desk.records.failed_over(conversation.record, action.cause, action.reason)
                if action.cause == failover.SILENT:
                    self._desk.fleet.on_unanswered(conversation.replica_id)
                self._apply(conversation, self._route(conversation))
            case Fail():
                self._delivery.fail(conversation, action.refusal)

    def _route(self, conversation: Conversation) -> Step:
        desk, stream = self._desk, conversation.stream
        now_s = desk.clock.now_s()
        choice: Choice | NoChoice = _OUT_OF_TOUCH
        if desk.post.connected:
            choice = desk.routing.choose(conversation.question(), conversation.wish.strategy, stream.request_id, now_s)
        return streams.chosen(stream, choice, desk.policies.streams, now_s)

    def _ask(self, conversation: Conversation, ask: Ask) -> None:
        """Nobody answers within this call, so it leaves before it is noted."""

        def on_failed(why: Refusal) -> None:
            now_s, policy = self._desk.clock.now_s(), self._desk.policies.streams
            self._apply(conversation, failover.undelivered(conversation.stream, ask.bus_id, why, policy, now_s))

        self._desk.post.generate(conversation.request(ask, self._desk), ask.replica_id, on_failed)
        self._live[ask.bus_id] = conversation
        self._desk.fleet.sends(ask.replica_id).sent(ask.bus_id, conversation.tokens)
        conversation.record.asked(ask)

    def _abandon(self, abandon: Abandon) -> None:
        self._live.pop(abandon.bus_id, None)
        self._desk.fleet.sends(abandon.replica_id).ended(abandon.bus_id)
        if abandon.tell:
            self._cancels.tell(abandon.replica_id, abandon.bus_id, abandon.reason, self._desk.clock.now_s())
