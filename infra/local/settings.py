"""What an operator may choose for the embedded fleet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from infra.local.pools import Pool, parse_pool
from shared.runtime.settings import read
from shared.store.access import S3Access

PREFIX = "LORAFLEET_"
_CLIENT_NAMES = frozenset(PREFIX + name for name in ("URL", "API_KEY", "ADMIN_URL", "ADMIN_KEY", "NATS_URL", "ALIASES"))
"""Of `demo.env`: whoever sourced it may start the fleet again from the same shell."""
_SERVICE_PREFIXES = tuple(PREFIX + name for name in ("GATEWAY_", "REGISTRY_", "PLACEMENT_", "AUTOSCALER_", "WORKER_"))
_OF_BOTH = frozenset(PREFIX + name for name in ("GATEWAY_WORKERS", "GATEWAY_METRICS_PORT"))
"""Of a service, and looked at here as well."""

_SCALE = re.compile(r"(?P<least>[1-9]\d?)\.\.(?P<most>[1-9]\d?)")


class LocalSettings(S3Access, frozen=True, kw_only=True):
    """Every field is an environment variable with the prefix LORAFLEET_."""

    home: Path = Path(".lorafleet")
    model: str | None = None
    """A model folder or a hub id; unset: the packaged SmolLM2-135M-Instruct."""
    store_url: str | None = None
    """`s3://bucket/prefix` or another `file:///folder`; unset: a folder of this fleet's home."""
    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int = 8081
    nats_port: int = 4222
    nats_monitoring_port: int = -1
    """-1: one that is free."""
    redis_url: str | None = None
    """`redis://:password@host:6379/0`, where gateways hold limits together; unset: a Valkey of this fleet's own."""
    probe_port: int = 8090
    """Metrics of placement, autoscaler and the replicas: this port and the next ones."""
    gateway_workers: int = 1
    gateway_metrics_port: int = 9_180
    """Of several gateway workers: the first one's; those of the others are the next ones."""
    replicas: int = 2
    slots: int = 4
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2048
    ram_budget_bytes: int = 1 << 30
    disk_budget_bytes: int = 8 << 30
    more_pools: tuple[str, ...] = ()
    """Further pools, `r64x2` or `/models/next:r16x1`: a rank limit and replicas, on another model if one is named."""
    engine: Literal["torch", "vllm", "timed"] = "torch"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    threads: int = 1
    weights_prefixes: tuple[str, ...] = ()
    """`file:///folder`: where `weights_uri` may point, besides the inbox and uploads."""
    merged: tuple[str, ...] = ()
    """Ids or digests of adapters that get a replica each, merged into its base, besides `replicas`."""
    autoscale: str | None = None
    """`1..3`: the autoscaler starts and stops replicas of each pool, which has at least 1 and at most 3; unset: it
    says how many there should be, and nobody acts on it."""
    demo: bool = True
    """Register the demo adapters and wait until one of them has answered."""

    def __post_init__(self) -> None:
        for name, least in (("REPLICAS", self.replicas), ("THREADS", self.threads)):
            if least < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.merged and self.engine != "torch":
            raise ValueError(f"MERGED needs ENGINE=torch, not {self.engine}")
        if self.scale is not None and any(pool.replicas not in self.scale for pool in self.pools):
            raise ValueError(f"REPLICAS and MORE_POOLS must begin within AUTOSCALE={self.autoscale}")
        if any(pool in self.pools[:at] for at, pool in enumerate(self.pools)):
            raise ValueError("MORE_POOLS names a pool twice")
        workers = self.gateway_workers if self.gateway_workers > 1 else 0
        taken: dict[int, str] = {}
        for name, port in (
            ("PORT", self.port), ("ADMIN_PORT", self.admin_port), ("NATS_PORT", self.nats_port),
            *(("PROBE_PORT (and the next ones)", self.probe_port + at) for at in range(self.probes)),
            *(("GATEWAY_METRICS_PORT (and the next ones)", self.gateway_metrics_port + at) for at in range(workers)),
        ):  # fmt: skip
            if not 1 <= port <= 65_535:
                raise ValueError(f"{name} is {port}, and a port is from 1 to 65535")
            if (other := taken.setdefault(port, name)) is not name:
                raise ValueError(f"{other} and {name} are both {port}")

    @property
    def probes(self) -> int:
        """How many ports from `probe_port` on are taken: placement, autoscaler, and each replica that there may be."""
        most = self.scale[-1] if self.scale is not None else 0
        return 2 + sum(max(pool.replicas, most) for pool in self.pools) + len(self.merged)

    @property
    def scale(self) -> range | None:
        """How many replicas a pool may have; None: what it has. Raises ValueError."""
        if self.autoscale is None:
            return None
        match = _SCALE.fullmatch(self.autoscale)
        if match is None or int(match["least"]) > int(match["most"]):
            raise ValueError(
                f"AUTOSCALE is {self.autoscale!r}: say the least and the most replicas of a pool, 1 to 99, as in 1..3"
            )
        return range(int(match["least"]), int(match["most"]) + 1)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All of them, the fleet's first one first. Raises ValueError."""
        first = Pool(model=None, rank_limit=self.rank_limit, replicas=self.replicas)
        return (first, *(parse_pool(text) for text in self.more_pools))


def read_settings(environ: Mapping[str, str]) -> LocalSettings:
    """Raises SettingsError naming a variable that is unknown or bad."""
    own = {
        name: value
        for name, value in environ.items()
        if name in _OF_BOTH or (name not in _CLIENT_NAMES and not name.startswith(_SERVICE_PREFIXES))
    }
    return read(LocalSettings, PREFIX, own)


def service_overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """What the operator says to single services in their own words (`LORAFLEET_GATEWAY_QUEUED_S=2`).

    It wins over what the fleet would tell them; each service refuses names that it does not know.
    """
    return {name: value for name, value in environ.items() if name.startswith(_SERVICE_PREFIXES)}
