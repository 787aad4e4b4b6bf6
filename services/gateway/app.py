"""The gateway between its HTTP door and the bus: lets requests in, keeps time, and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from services.gateway.conversation import Conversation, Desk
from services.gateway.core import refusal
from services.gateway.core.allowance import Demand, Denial, Late, NeedsLease, Pass
from services.gateway.core.completion import Heading
from services.gateway.core.directory import Caller, Listed, Target
from services.gateway.core.fleet import AHEAD_AT_ONCE
from services.gateway.core.openai.fitting import misfit, outsized
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Part, Wish, estimated_tokens
from services.gateway.exchange import Admitted, Terms
from services.gateway.following import Audience, Following
from services.gateway.records import RequestRecord
from shared.messages.reports import GatewayReport
from shared.messages.usage import BASE


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """Where chance comes from."""

    unique_id: Callable[[], str]
    seed: Callable[[], int]


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

    async def begin(self, caller: Caller, wish: Wish, request_id: str) -> Admitted | Refusal:
        def decide(late: Late) -> Admitted | Refusal | NeedsLease:
            return self._begin(caller, wish, request_id, late=late)

        return await self._limits.decided(decide)

    def _begin(self, caller: Caller, wish: Wish, request_id: str, *, late: Late) -> Admitted | Refusal | NeedsLease:
        target = self._directory.resolve(caller, wish, self._following.current)
        if isinstance(target, Refusal):
            return target
        if (unfit := misfit(wish, target) or outsized(wish, caller.limited)) is not None:
            return unfit
        parts = wish.parts(self._draws.seed())
        records = [self._record(caller, wish, target, request_id, part) for part in parts]
        if (reason := self._following.not_full()) is not None:
            unready = refusal.unavailable(reason, code="not_ready")
            self._desk.records.refused_at_once(records[0], unready, self._desk.clock)
            return unready
        most = self._desk.policies.most_streams
        if len(self._conversations) + len(parts) > most:
            full = refusal.unavailable(f"This gateway answers {most} requests already.", code="overloaded")
            self._desk.records.refused_at_once(records[0], full, self._desk.clock)
            return full
        demand = Demand(tokens=estimated_tokens(wish, target.max_context_tokens), choices=wish.choices)
        allowed = self._limits.admit(caller.limited, demand, late=late)
        if isinstance(allowed, NeedsLease):
            return allowed
        if isinstance(allowed, Denial):
            return refusal.limited(allowed)
        return self._open(wish, target, parts, records, allowed)

    def _open(
        self, wish: Wish, target: Target, parts: list[Part], records: list[RequestRecord], allowed: Pass
    ) -> Admitted:
        """Nothing of what it was allowed is kept if it fails to begin."""
        call_ids = [record.call_id for record in records]
        self._limits.begin(call_ids, allowed)
        exchange: Admitted | None = None
        try:
            exchange = Admitted(self._conversations, wish)
            for part, record, sink in zip(parts, records, exchange.sinks, strict=True):
                exchange.begin(Conversation(wish, part, target, record, sink))
            exchange.terms = self._terms(wish, target, records[0], self._limits.rest(allowed))
        except BaseException:
            self._undo(exchange, call_ids)
            raise
        return exchange

    def _undo(self, exchange: Admitted | None, call_ids: list[str]) -> None:
        """Of what has begun nobody will read anything: it ends, and whatever fails at that holds no limit either."""
        try:
            if exchange is not None:
                exchange.leave("The request failed to begin.")
        finally:
            self._limits.release(call_ids)

    def _record(self, caller: Caller, wish: Wish, target: Target, request_id: str, part: Part) -> RequestRecord:
        adapter_id, digest = (target.adapter.adapter_id, target.adapter.digest) if target.adapter else (BASE, "")
        return RequestRecord(
            request_id=request_id, call_id=self._draws.unique_id(), tenant_id=caller.tenant_id, key_id=caller.key_id,
            model=wish.model, adapter_id=adapter_id, digest=digest, pool_id=target.pool_ids[0], stream=wish.stream,
            began_s=self._desk.clock.now_s(), repeats_prompt=part.repeats,
        )  # fmt: skip

    def _terms(self, wish: Wish, target: Target, first: RequestRecord, limits: Mapping[str, str]) -> Terms:
        kind = "cmpl" if wish.is_text else "chatcmpl"
        heading = Heading(
            completion_id=f"{kind}-{first.call_id}", created_s=int(self._desk.clock.wall_s()), model=wish.model
        )
        return Terms(heading=heading, adapter_id=first.adapter_id, tool_parser=target.tool_parser, limits=limits)

    def turned_away(self, refusal: Refusal, request_id: str) -> None:
        self._desk.records.turned_away(refusal, request_id)

    def not_ready(self) -> str | None:
        return self._following.not_current()

    async def tick(self) -> None:
        """Deadlines, several times a second."""
        self._conversations.tick()
        self._desk.fleet.rank_ahead(AHEAD_AT_ONCE)
        self._replicas.tick(hearing=self._following.hearing)

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
