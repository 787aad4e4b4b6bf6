"""Everything about placement that can be set: variables `LORAFLEET_PLACEMENT_*`."""

from __future__ import annotations

import math

import msgspec

PREFIX = "LORAFLEET_PLACEMENT_"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = "placement"
    nats_password: str = ""
    instance: str = "placement"
    """The name in its log lines."""
    probe_port: int = 0
    owners: int = 2
    lost_after_s: float = 5.0
    lost_grace_s: float = 30.0
    """How long a silent replica keeps its adapters."""
    starting_grace_s: float = 180.0
    """How long a replica that restarts keeps them while it reports that it is not ready yet."""
    fill_s: float = 1.5
    """How long to listen before the first decision: one report interval and a half."""
    refresh_s: float = 60.0
    """How often plans follow what replicas really hold, and what is stored is read anew, when nothing else
    changes."""

    target_share: float = 0.15
    """How much of what a replica can do one customer's traffic should take of each of its owners."""
    replica_tokens_per_s: float = 640.0
    """What a replica can do, until one has measured it."""
    shrink_after_s: float = 180.0
    """How long the next step down must have been enough before owners go."""
    moves_per_s: int = 64
    """New adapters that a replica is given each second, besides those of a lost replica."""
    evictions_per_min: float = 60.0
    """A replica that evicts more for some seconds gets help, or the autoscaler a wish."""
    gpu_rates: tuple[str, ...] = ()
    """Tokens per second by kind of GPU as replicas report it, `NVIDIA H200=2.5,NVIDIA L4=0.3`; another kind does 1."""

    def __post_init__(self) -> None:
        if self.owners < 1:
            raise ValueError("OWNERS must be at least 1, or nobody would hold any adapter")
        if not 0 < self.lost_after_s < self.lost_grace_s:
            raise ValueError("LOST_AFTER_S must be above 0 and below LOST_GRACE_S")
        if not 0 < self.target_share <= 1:
            raise ValueError("TARGET_SHARE must be above 0 and at most 1")
        if self.replica_tokens_per_s <= 0:
            raise ValueError("REPLICA_TOKENS_PER_S must be above 0")
        if self.moves_per_s < 1:
            raise ValueError("MOVES_PER_S must be at least 1, or no replica would be given anything new")
        if self.refresh_s <= 0:
            raise ValueError("REFRESH_S must be above 0, or every plan would be made again each time")
        if min(self.fill_s, self.shrink_after_s, self.evictions_per_min, self.starting_grace_s) < 0:
            raise ValueError("FILL_S, SHRINK_AFTER_S, EVICTIONS_PER_MIN and STARTING_GRACE_S must not be negative")
        self.rates_by_gpu_kind()

    def rates_by_gpu_kind(self) -> dict[str, float]:
        """In lower case. Raises ValueError for an entry that is no rate, and for a kind that has two."""
        rates: dict[str, float] = {}
        for entry in self.gpu_rates:
            kind, rate = _rate(entry)
            if kind in rates:
                raise ValueError(f"GPU_RATES names {entry.rpartition('=')[0].strip()!r} twice")
            rates[kind] = rate
        return rates


def _rate(entry: str) -> tuple[str, float]:
    kind, _, rate = entry.rpartition("=")
    try:
        if kind.strip() and 0 < float(rate) < math.inf:
            return kind.strip().lower(), float(rate)
    except ValueError:
        pass
    raise ValueError(f"GPU_RATES has {entry!r}, which is no KIND=RATE with a rate above 0")
