"""The gateway between its HTTP door and the bus: lets requests in, keeps time, and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from services.gateway.conversation import Conversation, Desk
from services.gateway.conversations import Conversations
from services.gateway.core import refusal
from services.gateway.core.allowance import Denial, NeedsLease
from services.gateway.core.chat import ChatRequest, estimated_tokens
from services.gateway.core.completion import Heading
from services.gateway.core.directory import Caller, Listed
from services.gateway.core.fleet import AHEAD_AT_ONCE
from services.gateway.core.refusal import Refusal
from services.gateway.following import Audience, Following
from services.gateway.records import RequestRecord
from shared.messages.reports import GatewayReport
from shared.messages.usage import BASE


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """Where chance comes from."""

    unique_id: Callable[[], str]
    seed: Callable[[], int]


class Admitted:
    """An exchange that the HTTP door holds in its hand."""

    def __init__(
        self, conversations: Conversations, conversation: Conversation, heading: Heading, limits: Mapping[str, str]
    ) -> None:
        self._conversations = conversations
        self._conversation = conversation
        self.outlet = conversation.outlet
        self.adapter_id = conversation.record.adapter_id
        self.heading = heading
        self.limits = limits

    def leave(self, reason: str) -> None:
        self._conversations.leave(self._conversation, reason)


class Gateway:
    """Everything in here happens between two awaits: a decision never sees half of a change."""

    def __init__(self, desk: Desk, audience: Audience, following: Following, draws: Draws) -> None:
        self._desk = desk
        self._directory = audience.directory
        self._conversations = audience.conversations
        self._replicas = audience.replicas
        self._limits = audience.limits
        self._following = following
        self._draws = draws
        self._sequence = 0

    def authenticate(self, authorization: str | None) -> Caller | Refusal:
        return self._directory.authenticate(authorization, self._following.current)

    def models(self, caller: Caller) -> tuple[Listed, ...]:
        return self._directory.models(caller)

    def unique_id(self) -> str:
        return self._draws.unique_id()

    async def begin(self, caller: Caller, chat: ChatRequest, request_id: str) -> Admitted | Refusal:
        def decide(late: bool) -> Admitted | Refusal | NeedsLease:
            return self._begin(caller, chat, request_id, late=late)

        return await self._limits.decided(decide)

    def _begin(
        self, caller: Caller, chat: ChatRequest, request_id: str, *, late: bool
    ) -> Admitted | Refusal | NeedsLease:
        target = self._directory.resolve(caller, chat, self._following.current)
        if isinstance(target, Refusal):
            return target
        call_id = self._draws.unique_id()
        adapter_id, digest = (target.adapter.adapter_id, target.adapter.digest) if target.adapter else (BASE, "")
        record = RequestRecord(
            request_id=request_id, call_id=call_id, tenant_id=caller.tenant_id, key_id=caller.key_id,
            model=chat.model, adapter_id=adapter_id, digest=digest, pool_id=target.pool_ids[0], stream=chat.stream,
            began_s=self._desk.clock.now_s(),
        )  # fmt: skip
        if (reason := self._following.not_full()) is not None:
            unready = refusal.unavailable(reason, code="not_ready")
            self._desk.records.refused_at_once(record, unready, self._desk.clock)
            return unready
        allowed = self._limits.admit(caller.limited, estimated_tokens(chat, target.max_context_tokens), late=late)
        if isinstance(allowed, NeedsLease):
            return allowed
        if isinstance(allowed, Denial):
            return refusal.limited(allowed)
        self._limits.begin(call_id, allowed)
        conversation = Conversation(chat, target, record)
        self._conversations.begin(conversation, self._draws.seed())
        heading = Heading(
            completion_id=f"chatcmpl-{call_id}", created_s=int(self._desk.clock.wall_s()), model=chat.model
        )
        return Admitted(self._conversations, conversation, heading, allowed.headers)

    def turned_away(self, refusal: Refusal, request_id: str) -> None:
        self._desk.records.turned_away(refusal, request_id)

    def not_ready(self) -> str | None:
        return self._following.not_current()

    async def tick(self) -> None:
        """Deadlines, several times a second."""
        self._conversations.tick()
        self._desk.fleet.rank_ahead(AHEAD_AT_ONCE)
        self._replicas.tick(hearing=self._following.current)

    async def report(self) -> None:
        """The lease on every request under way: a worker drops those of a gateway that is silent."""
        records = self._desk.records
        self._sequence += 1
        report = GatewayReport(
            gateway_id=self._desk.gateway_id, sequence=self._sequence, streams=len(self._conversations),
            requests=records.requests, refused=records.refused, tokens=records.tokens,
            sent_tokens=self._desk.fleet.promised_tokens(),
        )  # fmt: skip
        await self._desk.post.report(report)
