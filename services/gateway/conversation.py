"""One request under way, and what the gateway works on requests with."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from services.gateway.core import deadline, streams
from services.gateway.core.directory import Target
from services.gateway.core.fleet import Fleet
from services.gateway.core.question import Question
from services.gateway.core.stream import Ask, Phase, Stream, StreamPolicy
from services.gateway.core.transcript import Transcript
from services.gateway.core.wish import Part, Wish, promised_tokens
from services.gateway.io.outlet import Outlet
from services.gateway.io.sheaf import Strand
from services.gateway.post import Post
from services.gateway.records import Records, RequestRecord
from services.gateway.routing import Routing
from shared.messages.generation import GenerateRequest, TokenChunk
from shared.messages.identity import key_of
from shared.runtime.clock import Clock
from shared.runtime.tracing import NO_SPAN, NO_TRACER, Span, Tracer

_NOT_STREAMING = -1
_LEAST_OBJECTIVE_S = 0.001
"""None would mean that any wait will do."""
_salt_of = lru_cache(4_096)(key_of)
"""Of a tenant."""


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """`objective_s`: replicas that cannot give a first token within it refuse; 0: they let requests wait. So they do
    with all answers to a request but its first: a request may ask for more of them than there are rows."""

    streams: StreamPolicy
    most_waiting_bytes: int
    most_streams: int = 10_000
    objective_s: float = 0.0


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What every conversation works with."""

    gateway_id: str
    fleet: Fleet
    post: Post
    records: Records
    routing: Routing
    clock: Clock
    policies: Policies
    tracer: Tracer = NO_TRACER


class Conversation:
    """One answer: its state, where its tokens go, and what will be recorded of it. Between two of its tokens
    thousands of others come: what has no dictionary is found again in fewer lines of the processor's memory."""

    __slots__ = (
        "_heard_s", "_next_position", "_stream", "outlet", "part", "record", "span", "target", "tokens", "transcript",
        "wish",
    )  # fmt: skip

    def __init__(self, wish: Wish, part: Part, target: Target, record: RequestRecord, outlet: Outlet | Strand) -> None:
        self.wish = wish
        self.part = part
        self.target = target
        self.tokens = promised_tokens(part.prompt, wish.sampling.max_tokens, target.max_context_tokens)
        self.record = record
        self.outlet = outlet
        began_s = record.began_s
        stream = Stream(
            request_id=record.call_id, began_s=began_s, since_s=began_s, adapter=target.adapter,
            asked_by=wish.asked_by,
        )  # fmt: skip
        self.stream = deadline.with_deadline(stream, wish.timeout_s, whole=not wish.stream)
        self._heard_s = began_s
        self.transcript = Transcript()
        self.span: Span = NO_SPAN

    @property
    def stream(self) -> Stream:
        """Brought up to date for whoever looks: plain tokens, of which there are most, only move two numbers."""
        if self._next_position > self._stream.next_position:
            self._stream = streams.gone_on(self._stream, self._next_position, self._heard_s)
        return self._stream

    @stream.setter
    def stream(self, stream: Stream) -> None:
        self._stream = stream
        self._next_position = stream.next_position if stream.phase is Phase.STREAMING else _NOT_STREAMING

    @property
    def replica_id(self) -> str:
        """Who works on it, or did last."""
        return self._stream.replica_id

    def goes_on(self, chunk: TokenChunk, now_s: float) -> bool:
        """The hot path: whether this is the next token of a stream and nothing else. It is the stream's then."""
        tokens = len(chunk.token_ids)
        if chunk.position != self._next_position or chunk.finish is not None or not tokens:
            return False
        self._next_position += tokens
        self._heard_s = now_s
        return True

    def flows(self, now_s: float, stall_s: float) -> bool:
        """It streams, and no deadline is near."""
        streams_on = self._next_position != _NOT_STREAMING and now_s - self._heard_s <= stall_s
        return streams_on and not self._stream.whole

    def question(self) -> Question:
        """Who is to be asked, of those who were not tried yet."""
        target = self.target
        return Question(
            adapter=target.adapter, pool_ids=target.pool_ids, tokens=self.tokens,
            tried=frozenset(self.stream.tried), merged_pool_ids=target.merged_pool_ids,
        )  # fmt: skip

    def request(self, ask: Ask, desk: Desk) -> GenerateRequest:
        """What a replica is asked: identity by adapter and digest, never by alias; and where to go on."""
        wish, prompt, target = self.wish, self.part.prompt, self.target
        now_s, policies = desk.clock.now_s(), desk.policies
        left_s = max(0.0, policies.streams.first_token_s - (now_s - self.stream.began_s))
        return GenerateRequest(
            request_id=ask.bus_id,
            gateway_id=desk.gateway_id,
            tenant_id=target.tenant_id,
            pool_id=ask.pool_id,
            base_model_hash=target.base_model_hash,
            messages=prompt.messages,
            prompt=prompt.text,
            prompt_token_ids=prompt.token_ids,
            sampling=msgspec.structs.replace(wish.sampling, seed=self.part.seed),
            tools=wish.tools.offered if wish.tools is not None else "",
            adapter_id=target.adapter.adapter_id if target.adapter is not None else None,
            digest=target.adapter.digest if target.adapter is not None else None,
            produced_token_ids=self.transcript.token_ids,
            produced_text_chars=self.transcript.text_chars,
            attempt=ask.attempt,
            deadline_s=min(left_s, deadline.left_s(self.stream, now_s)),
            objective_s=self._objective_s(policies.objective_s, ask, now_s),
            cache_salt=_salt_of(target.tenant_id),
            traceparent=self.span.traceparent,
        )

    def _objective_s(self, objective_s: float, ask: Ask, now_s: float) -> float:
        """What is left of it for this replica: whoever waited in vain at another one does not begin anew."""
        if not objective_s or not self.part.first or self.stream.shown:
            return 0.0
        waited_s = now_s - self.stream.began_s if ask.attempt else 0.0
        return max(objective_s - waited_s, _LEAST_OBJECTIVE_S)

    def begin_span(self, desk: Desk) -> None:
        self.span = desk.tracer.begin("gateway request", self.wish.traceparent, desk.clock.wall_s())

    def end_span(self, clock: Clock) -> None:
        """With the wait for the first token as a part of it."""
        record, at_s = self.record, clock.wall_s()
        began_at_s = at_s - clock.now_s() + record.began_s
        if record.ttft_s is not None:
            self.span.part("first token", began_at_s, began_at_s + record.ttft_s)
        self.span.end(
            at_s, outcome=record.outcome, request_id=record.request_id, adapter=record.adapter_id, tier=record.tier,
            replica=record.replica_id, attempts=record.attempts, completion_tokens=record.tokens,
        )  # fmt: skip
