"""Everything about the autoscaler that can be set: variables `LORAFLEET_AUTOSCALER_*`."""

from __future__ import annotations

import msgspec

PREFIX = "LORAFLEET_AUTOSCALER_"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = "autoscaler"
    nats_password: str = ""
    instance: str = "autoscaler"
    """The name in its log lines."""
    probe_port: int = 0
    min_replicas: int = 1
    max_replicas: int = 40
    max_queue_s: float = 2.0
    tokens_in_flight_per_replica: int = 64_000
    up_cooldown_s: float = 15.0
    down_cooldown_s: float = 300.0
    start_deadline_s: float = 180.0
    """How long a wished replica may take before it no longer counts as coming."""
    fill_s: float = 1.5
    """How long to listen before the first decision: one report interval and a half."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError("MIN_REPLICAS must be from 1 to MAX_REPLICAS")
        if self.tokens_in_flight_per_replica < 1:
            raise ValueError("TOKENS_IN_FLIGHT_PER_REPLICA must be at least 1")
