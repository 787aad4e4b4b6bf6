"""Everything that can be set about a gateway, read once at its start."""

from __future__ import annotations

import msgspec

from services.gateway.core.activity import ActivityPolicy
from services.gateway.core.quarantine import QuarantinePolicy
from services.gateway.core.question import Overflow, RoutingPolicy, Strategy
from services.gateway.core.stream import StreamPolicy
from services.gateway.core.usage import UsagePolicy
from services.gateway.io.body import BodyLimits
from services.gateway.io.connection_policy import ConnectionPolicy
from shared.messages.identity import is_subject_token
from shared.ttft_by_customer import TtftPolicy

PREFIX = "LORAFLEET_GATEWAY_"
_MOST_WORKERS = 64
_POSITIVE = (
    "largest_body_bytes", "body_idle_s", "body_s", "most_waiting_bytes", "slow_write_s", "fresh_s", "queued_s",
    "accept_s", "first_token_s", "stall_s", "drain_s", "most_usage_records", "quarantine_first_s", "quarantine_most_s",
    "objective_ttft_s", "limits_wait_s", "limits_streams_wait_s", "redis_timeout_s", "most_streams", "most_connections",
    "largest_head_bytes", "head_s", "keep_alive_s",
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`port` 0 lets the system choose. `fresh_s`: a replica that says nothing for longer is lost.
    `most_waiting_bytes` bounds what is kept for a client that reads slowly, `body_idle_s` the wait for one
    that stops in the middle of its request, `body_s` that for all of it."""

    nats_url: str
    nats_user: str
    nats_password: str
    gateway_id: str
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    """Processes behind the one port, each a gateway of its own on the bus."""
    worker: int = -1
    """Which of several this process is: its supervisor says so."""
    metrics_port: int = 9_180
    """Of several: the first one's, for its metrics and probes; those of the others are the next ones."""
    largest_body_bytes: int = 8 << 20
    body_idle_s: float = 30.0
    body_s: float = 300.0
    most_waiting_bytes: int = 1 << 20
    most_streams: int = 10_000
    """Answers under way at once, those included for which nobody can be asked yet."""
    slow_write_s: float = 30.0
    most_connections: int = 16_000
    """At once, as far as the process may have so many files open."""
    largest_head_bytes: int = 64 << 10
    head_s: float = 10.0
    """How long the head of a request may take to come."""
    keep_alive_s: float = 75.0
    """How long a connection may be idle: longer than balancers before the gateway keep theirs."""
    fresh_s: float = 3.0
    patience_s: float = 2.0
    queued_s: float = 1.0
    accept_s: float = 30.0
    first_token_s: float = 60.0
    stall_s: float = 60.0
    margin_tokens: int = 6_000
    margin_requests: float = 1.5
    spill_above: float = 0.7
    spill_waiting: int = 2
    """Requests that wait for a row of every owner before a replica is asked that has to fetch the adapter."""
    load_bound: float = 1.25
    strategy: Strategy = "affinity"
    overflow: Overflow = "next"
    bounded: bool = True
    request_strategies: bool = False
    """Whether the header x-lorafleet-strategy chooses the strategy for its request: for replays, not for customers."""
    quarantine_first_s: float = 2.0
    quarantine_most_s: float = 60.0
    route_log_one_in: int = 100
    """Decisions of which one is logged; 0: none."""
    objective_ttft_s: float = 1.0
    shed_late: bool = True
    """Whether replicas refuse at once what would wait for a row too long for the objective, or let it wait."""
    tracing: str = ""
    """Where spans go, an OTLP endpoint; "": nothing is traced."""
    redis_url: str = ""
    """`redis://:password@host:6379/0`, where all gateways hold limits together; "": each goes by its own share."""
    limits_wait_s: float = 0.05
    """How long at most a request waits for Redis."""
    limits_streams_wait_s: float = 1.5
    """The same of one that lacks a place for a stream: longer than the next, after which Redis is away."""
    redis_timeout_s: float = 1.0
    """After it a silent Redis is away."""
    drain_s: float = 20.0
    most_usage_records: int = 50_000
    """Of requests that ended, kept while the bus is away."""

    def __post_init__(self) -> None:
        if not is_subject_token(self.gateway_id) or len(self.gateway_id) > 48:
            raise ValueError(f"gateway_id must be 1 to 48 of A-Z a-z 0-9 _ -, not {self.gateway_id!r}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 1 <= self.workers <= _MOST_WORKERS:
            raise ValueError(f"workers must be 1 to {_MOST_WORKERS}, not {self.workers}")
        if self.workers > 1 and not self.port:
            raise ValueError("workers share a port, so port must not be 0")
        if not -1 <= self.worker < self.workers:
            raise ValueError(f"worker must be below {self.workers}, not {self.worker}")
        if self.route_log_one_in < 0:
            raise ValueError(f"route_log_one_in must be at least 0, not {self.route_log_one_in}")
        if self.load_bound < 1:
            raise ValueError(f"load_bound must be at least 1, not {self.load_bound}: nobody could have the mean load")

    @property
    def supervises(self) -> bool:
        """This process is no gateway, and starts others that are."""
        return self.workers > 1 and self.worker < 0

    def of_worker(self) -> Settings:
        """Its name apart from those of the others."""
        if self.worker < 0:
            return self
        return msgspec.structs.replace(self, gateway_id=f"{self.gateway_id}-w{self.worker}")

    @property
    def body(self) -> BodyLimits:
        return BodyLimits(largest_bytes=self.largest_body_bytes, idle_s=self.body_idle_s, whole_s=self.body_s)

    @property
    def connections(self) -> ConnectionPolicy:
        return ConnectionPolicy(
            most=self.most_connections, largest_head_bytes=self.largest_head_bytes, head_s=self.head_s,
            keep_alive_s=self.keep_alive_s, slow_write_s=self.slow_write_s,
        )  # fmt: skip

    @property
    def streams(self) -> StreamPolicy:
        return StreamPolicy(
            patience_s=self.patience_s, queued_s=self.queued_s, accept_s=self.accept_s,
            first_token_s=self.first_token_s, stall_s=self.stall_s,
        )  # fmt: skip

    @property
    def usage(self) -> UsagePolicy:
        return UsagePolicy(most_records=self.most_usage_records)

    @property
    def routing(self) -> RoutingPolicy:
        return RoutingPolicy(
            strategy=self.strategy, margin_tokens=self.margin_tokens, margin_requests=self.margin_requests,
            bounded=self.bounded, spill_above=self.spill_above, spill_waiting=self.spill_waiting,
            bound=self.load_bound, overflow=self.overflow,
        )  # fmt: skip

    @property
    def activity(self) -> ActivityPolicy:
        return ActivityPolicy(objective_ttft_s=self.objective_ttft_s)

    @property
    def customers(self) -> TtftPolicy:
        return TtftPolicy(objective_s=self.objective_ttft_s)

    @property
    def quarantine(self) -> QuarantinePolicy:
        return QuarantinePolicy(first_s=self.quarantine_first_s, most_s=self.quarantine_most_s)
