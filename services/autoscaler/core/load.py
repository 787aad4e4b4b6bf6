"""What deciding about a pool looks at: its replicas one by one, and what its customers ask for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ReplicaLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's last word. Whether it is too old to count is for the decision to judge by `heard_at_s`."""

    replica_id: str
    heard_at_s: float
    ready: bool = True
    draining: bool = False
    warming: bool = False
    """Ready, and spared by gateways while they have others."""
    running: int = 0
    queue_depth: int = 0
    tokens_in_flight: int = 0
    queued_tokens: int = 0
    """The part of `tokens_in_flight` that waits; all of `max_tokens` counted, so it errs towards too much."""
    tokens_per_s: float = 0.0
    capacity_tokens_per_s: float = 0.0
    """With every row taken, prompts included as they come; 0: not known yet."""
    evictions_per_min: float = 0.0
    slots: int = 0
    slots_busy: int = 0
    max_rows: int = 0
    kv_used_tokens: int = 0
    kv_total_tokens: int = 0
    """0: it says nothing of its KV cache, and is neither full nor empty."""
    weight: float = 1.0
    """Its share of the pool's adapters, as ranking sees it."""

    @property
    def empty(self) -> bool:
        return self.running == 0 and self.queue_depth == 0

    @property
    def kv_share(self) -> float:
        """How full its KV cache is, 0 to 1; 0 of one that says nothing of it."""
        return min(1.0, self.kv_used_tokens / self.kv_total_tokens) if self.kv_total_tokens else 0.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What arrived at all gateways for one pool. `heard` is false while no
    gateway has said anything: the figures mean nothing then. `requests_per_s_short` and `late_share_short` are
    over some seconds, `requests_per_s` over about a minute, the rest over some minutes; `tokens_per_s` are the
    completion tokens that customers got. A request that the fleet refused counts as asked for, and as late."""

    heard: bool = False
    requests_per_s: float = 0.0
    requests_per_s_short: float = 0.0
    noise_per_s: float = 0.0
    """How far `requests_per_s` strays by chance (one standard error)."""
    noise_per_s_short: float = 0.0
    tokens_per_request: float = 0.0
    tokens_per_s: float = 0.0
    late_share: float = 0.0
    late_share_short: float = 0.0


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One pool now. `existing` is what the actuator says is there, started and not heard yet included; None where it
    cannot know. `removal_order` is the only order in which it can remove, first to go first; None: any.
    """

    pool_id: str
    replicas: Mapping[str, ReplicaLoad] = {}
    existing: frozenset[str] | None = None
    removal_order: tuple[str, ...] | None = None
    held: frozenset[str] = frozenset()
    """Replicas that a person ordered to drain: they are no capacity, and nobody else's business."""
    demand: Demand = Demand()
    pressure_replicas: int = 0
    """How many replicas placement says the pool's adapters need; 0: it says nothing."""
    pressure_reason: str = ""
    expected_rate: float = 0.0
    """Tokens/s that a replica is expected to do until one has shown it; 0: unknown."""
    affordable: int | None = None
    """How many replicas the budget pays; None: no budget."""
    wanted: bool = True
    """False for a merged pool whose customer has become quiet: it is to go."""
    day_s: float | None = None
    """Seconds since midnight UTC, for the shape of the day."""
