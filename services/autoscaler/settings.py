"""Everything about the autoscaler that can be set: variables `LORAFLEET_AUTOSCALER_*`."""

from __future__ import annotations

import msgspec

PREFIX = "LORAFLEET_AUTOSCALER_"

_MOST_PORT = 65_535

_ABOVE_0 = ("max_queue_s", "down_cooldown_s", "average_s", "start_deadline_s", "objective_ttft_s")
_NOT_NEGATIVE = (
    "up_cooldown_s", "down_step_s", "panic_s", "drain_deadline_s", "fill_s", "merged_share", "merged_hold_s",
    "merged_quiet_s", "usd_per_replica_hour", "budget_usd_per_hour",
)  # fmt: skip

ACTUATORS = ("recommend", "process", "compose", "kubernetes")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = "autoscaler"
    nats_password: str = ""
    instance: str = "autoscaler"
    """The name in its log lines."""
    probe_port: int = 0
    actuator: str = "recommend"
    """Who starts and stops replicas: one of ACTUATORS. "recommend": somebody else, who follows the wish; "process":
    the supervisor of an embedded fleet; "compose" and "kubernetes": those of SCALED."""
    supervisor: str = ""
    """The socket of that supervisor."""
    scaled: tuple[str, ...] = ()
    """`POOL_ID=NAME`: the service of Compose, or the StatefulSet, that holds a pool's replicas."""
    compose_command: str = "docker compose"
    """With the file and the project: `docker compose -f /fleet/docker-compose.yml -p fleet`."""
    kubernetes_namespace: str = "default"
    min_replicas: int = 1
    max_replicas: int = 40
    utilisation: float = 0.8
    """How much of a replica's token rate the demand may take."""
    max_queue_s: float = 2.0
    tokens_in_flight_per_replica: int = 64_000
    up_cooldown_s: float = 15.0
    """How long a new replica shows what it does before queues call for another one."""
    down_cooldown_s: float = 180.0
    """How long fewer replicas must have been enough."""
    down_step_s: float = 30.0
    """From one step down to the next."""
    panic_s: float = 60.0
    """How long after a leap of the load no replica is taken away."""
    average_s: float = 40.0
    """Over which the demand is averaged where nothing is urgent."""
    start_deadline_s: float = 180.0
    """How long a replica may take to become ready before it no longer counts as coming."""
    drain_deadline_s: float = 600.0
    """How long a replica may take to finish what it runs before it is removed all the same."""
    day_shape: bool = False
    """Whether what the same time of day needed on the last days is a floor for today."""
    merged_share: float = 0.0
    """Of one replica's token rate: a customer with more gets merged replicas. 0: never."""
    merged_hold_s: float = 120.0
    """How long it must have had more."""
    merged_quiet_s: float = 1_800.0
    """How long it must have had much less before they go."""
    usd_per_replica_hour: float = 2.5
    budget_usd_per_hour: float = 0.0
    """0: no budget."""
    objective_ttft_s: float = 1.0
    """A customer whose 95th percentile is above it is told of as late; the gateways' own should be the same."""
    fill_s: float = 1.5
    """How long to listen before the first decision: one report interval and a half."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError("MIN_REPLICAS must be from 1 to MAX_REPLICAS")
        if self.tokens_in_flight_per_replica < 1:
            raise ValueError("TOKENS_IN_FLIGHT_PER_REPLICA must be at least 1")
        if not 0.0 < self.utilisation <= 1.0:
            raise ValueError("UTILISATION must be above 0 and at most 1")
        if self.actuator not in ACTUATORS:
            raise ValueError(f"ACTUATOR must be one of {', '.join(ACTUATORS)}")
        if self.actuator == "process" and not self.supervisor:
            raise ValueError("ACTUATOR=process needs SUPERVISOR, the supervisor's socket")
        if self.actuator in ("compose", "kubernetes") and not self.scaled:
            raise ValueError(f"ACTUATOR={self.actuator} needs SCALED, a list of POOL_ID=NAME")
        if any(not all(text.partition("=")) for text in self.scaled):
            raise ValueError("SCALED must be a list of POOL_ID=NAME")
        if not 0 <= self.probe_port <= _MOST_PORT:
            raise ValueError(f"PROBE_PORT must be from 0 to {_MOST_PORT}, not {self.probe_port}")
        # NaN is neither above nor below anything, so what may be is asked for, not what may not.
        for name in _ABOVE_0:
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name.upper()} must be above 0, not {getattr(self, name):g}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name.upper()} must not be negative, and is {getattr(self, name):g}")

    @property
    def names(self) -> dict[str, str]:
        """By pool, what holds its replicas."""
        return {pool_id: name for pool_id, _, name in (text.partition("=") for text in self.scaled)}
