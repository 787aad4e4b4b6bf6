"""What an operator may choose for the embedded fleet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from shared.runtime.settings import read

PREFIX = "LORAFLEET_"
_CLIENT_NAMES = frozenset(PREFIX + name for name in ("URL", "API_KEY", "ADMIN_URL", "ADMIN_KEY", "NATS_URL", "ALIASES"))
"""Of `demo.env`: whoever sourced it may start the fleet again from the same shell."""
_SERVICE_PREFIXES = tuple(PREFIX + name for name in ("GATEWAY_", "REGISTRY_", "PLACEMENT_", "AUTOSCALER_", "WORKER_"))


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every field is an environment variable with the prefix LORAFLEET_."""

    home: Path = Path(".lorafleet")
    model: str | None = None
    """A model folder or a hub id; unset: the packaged SmolLM2-135M-Instruct."""
    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int = 8081
    nats_port: int = 4222
    nats_monitoring_port: int = -1
    """-1: one that is free."""
    probe_port: int = 8090
    """Metrics of placement, autoscaler and the replicas: this port and the next ones."""
    replicas: int = 2
    slots: int = 4
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2048
    ram_budget_bytes: int = 1 << 30
    disk_budget_bytes: int = 8 << 30
    engine: str = "torch"
    dtype: str = "bfloat16"
    threads: int = 1
    weights_prefixes: tuple[str, ...] = ()
    """`file:///folder`: where `weights_uri` may point, besides the inbox and uploads."""
    demo: bool = True
    """Register the demo adapters and wait until one of them has answered."""


def read_settings(environ: Mapping[str, str]) -> LocalSettings:
    """Raises SettingsError naming a variable that is unknown or bad."""
    own = {
        name: value
        for name, value in environ.items()
        if name not in _CLIENT_NAMES and not name.startswith(_SERVICE_PREFIXES)
    }
    return read(LocalSettings, PREFIX, own)
