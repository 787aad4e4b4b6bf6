"""What is left of a request: its log line, its share of the metrics, and its usage record."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.gateway.core.activity import Activity
from services.gateway.core.refusal import CLIENT_LEFT, Refusal
from services.gateway.core.stream import Ask
from services.gateway.io.meters import Meters
from shared.messages.generation import Accepted, Finish, Usage
from shared.messages.usage import UsageRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.ttft_by_customer import TtftByCustomer

_log = get_logger(__name__)


class RequestRecord(msgspec.Struct, kw_only=True):
    """Filled in while a request goes through. `call_id` is its id on the bus; `ttft_s` None: no token came.
    `tokens` are those that the client's outlet got, whichever replicas they came from.
    `repeats_prompt`: another answer to a prompt that is counted once."""

    request_id: str
    call_id: str
    tenant_id: str
    key_id: str
    model: str
    adapter_id: str
    stream: bool
    began_s: float
    repeats_prompt: bool = False
    digest: str = ""
    pool_id: str = ""
    replica_id: str = ""
    tier: str = ""
    attempts: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    ttft_s: float | None = None
    last_token_s: float = 0.0
    """When the last of them came; means nothing before the first."""
    outcome: str = ""
    reason: str = ""

    def asked(self, ask: Ask) -> None:
        self.replica_id, self.pool_id = ask.replica_id, ask.pool_id
        self.attempts, self.reason = ask.attempt + 1, ask.reason

    def accepted(self, accepted: Accepted) -> None:
        self.tier = accepted.tier
        self.read(accepted.prompt_tokens, accepted.cached_tokens)

    def read(self, prompt_tokens: int, cached_tokens: int) -> None:
        if not self.repeats_prompt:
            self.prompt_tokens, self.cached_tokens = prompt_tokens, cached_tokens


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of requests: Prometheus, and the two that follow what each customer asks for and waits."""

    meters: Meters
    activity: Activity
    customers: TtftByCustomer


class Records:
    """Counts since the start. `leave_usage` gets the usage record of each request that had a target, when it ends."""

    def __init__(self, audit: Audit, leave_usage: Callable[[UsageRecord], None]) -> None:
        self._leave_usage = leave_usage
        self._meters = audit.meters
        self._gaps = audit.meters.gaps
        self._activity = audit.activity
        self._customers = audit.customers
        self.streams = audit.meters.streams
        self.requests = 0
        self.refused = 0
        self.tokens = 0

    def turned_away(self, refusal: Refusal, request_id: str) -> None:
        """A request that never got as far as a replica."""
        _log.info("a request was turned away", request_id=request_id, status=refusal.status, reason=refusal.message)
        self.requests += 1
        self.refused += 1
        self._meters.turned_away(outcome_of(refusal))

    def refused_at_once(self, record: RequestRecord, refusal: Refusal, clock: Clock) -> None:
        """A request whose target is known, before anybody was asked; to be `turned_away` as well."""
        record.outcome = outcome_of(refusal)
        self._activity.began(record.pool_id, record.adapter_id)
        self._activity.refused(record.pool_id)
        self._leave_usage(usage_of(record, clock))

    def began(self, record: RequestRecord) -> None:
        """It is known who is asked first, or that nobody can be."""
        self._activity.began(record.pool_id, record.adapter_id)

    def failed_over(self, record: RequestRecord, cause: str, reason: str) -> None:
        """`record` still names the replica that the request leaves."""
        ids = {"request_id": record.request_id, "call_id": record.call_id, "replica_id": record.replica_id}
        _log.info("a request moves on to another replica", cause=cause, reason=reason, **ids)
        self._meters.failed_over(cause)

    def asked_replay(self) -> None:
        self._meters.replayed()

    def frame(self, lag_s: float) -> None:
        """A frame came that was written `lag_s` ago."""
        self._meters.frame(lag_s)

    def accepted(self, record: RequestRecord, accepted: Accepted) -> None:
        record.accepted(accepted)
        self._meters.accepted(record.adapter_id, accepted.tier)

    def first_token(self, record: RequestRecord, now_s: float) -> None:
        record.ttft_s = now_s - record.began_s
        record.last_token_s = now_s
        self._meters.first_token(record.tier, record.ttft_s)
        self._activity.first_token(record.pool_id, record.adapter_id, record.ttft_s)
        self._customers.first_token(record.adapter_id, record.ttft_s, now_s)

    def delivered(self, record: RequestRecord, tokens: int, now_s: float) -> None:
        if tokens:
            if record.tokens:
                self._gaps[record.tier].observe(now_s - record.last_token_s)
            record.last_token_s = now_s
            record.tokens += tokens
        self._activity.tokens(record.pool_id, record.adapter_id, tokens)

    def finished(self, record: RequestRecord, finish: Finish) -> None:
        """The answer is whole."""
        record.read(finish.usage.prompt_tokens, finish.usage.cached_tokens)
        self._activity.finished(record.pool_id, record.adapter_id)

    def failed(self, record: RequestRecord, refusal: Refusal) -> None:
        record.reason = refusal.detail or refusal.message
        if record.ttft_s is not None or refusal.code == CLIENT_LEFT:
            return
        self._meters.refused(outcome_of(refusal))
        if refusal.heals:
            self._activity.refused(record.pool_id)

    def ended(self, record: RequestRecord, clock: Clock) -> None:
        now_s = clock.now_s()
        self._leave_usage(usage_of(record, clock))
        self.requests += 1
        self.refused += record.outcome not in ("stop", "length")
        self.tokens += record.tokens
        self._measure(record, now_s)
        fields = {name: value for name, value in msgspec.structs.asdict(record).items() if not name.endswith("_s")}
        ttft_ms = None if record.ttft_s is None else round(record.ttft_s * 1000, 1)
        duration_ms = round((now_s - record.began_s) * 1000, 1)
        _log.info("a request ended", **fields, ttft_ms=ttft_ms, duration_ms=duration_ms)

    def _measure(self, record: RequestRecord, now_s: float) -> None:
        used = Usage(
            prompt_tokens=record.prompt_tokens, completion_tokens=record.tokens, cached_tokens=record.cached_tokens
        )
        self._meters.ended(record.tier, record.outcome, now_s - record.began_s, used)
        if record.ttft_s is not None and record.tokens > 1:
            streamed_s = record.last_token_s - record.began_s - record.ttft_s
            self._meters.per_token(record.tier, record.outcome, streamed_s / (record.tokens - 1))


def outcome_of(refusal: Refusal) -> str:
    return refusal.code or str(refusal.status)


def usage_of(record: RequestRecord, clock: Clock) -> UsageRecord:
    """The usage record of a request that ends now."""
    return UsageRecord(
        call_id=record.call_id, request_id=record.request_id, tenant_id=record.tenant_id, key_id=record.key_id,
        alias=record.model, adapter_id=record.adapter_id, digest=record.digest, pool_id=record.pool_id,
        replica_id=record.replica_id, tier=record.tier, prompt_tokens=record.prompt_tokens,
        completion_tokens=record.tokens, cached_tokens=record.cached_tokens,
        ttft_ms=None if record.ttft_s is None else record.ttft_s * 1000,
        duration_ms=(clock.now_s() - record.began_s) * 1000, outcome=record.outcome, attempts=record.attempts,
        stream=record.stream, at_s=clock.wall_s(),
    )  # fmt: skip
