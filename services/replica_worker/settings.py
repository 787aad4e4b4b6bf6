"""What a replica is told by its environment, once."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from shared.messages.identity import is_subject_token

PREFIX = "LORAFLEET_WORKER_"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Raises ValueError for values that no replica could run with."""

    replica_id: str
    model_folder: Path
    store_url: str
    cache_folder: Path
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    engine: Literal["torch", "timed"] = "torch"
    slots: int = 8
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2_048
    ram_budget_bytes: int = 1 << 30
    disk_budget_bytes: int = 8 << 30
    threads: int = 0
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    probe_port: int = 0
    queue_limit: int = 256
    """Requests that may wait, for an adapter or for a row, before more are refused."""
    drain_deadline_s: float = 20.0

    def __post_init__(self) -> None:
        if not is_subject_token(self.replica_id):
            raise ValueError(f"REPLICA_ID {self.replica_id!r} must be 1 to 64 of A-Z a-z 0-9 _ -")
        for name in ("slots", "rank_limit", "max_rows", "max_context_tokens", "ram_budget_bytes", "disk_budget_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.upper()} must be at least 1, not {getattr(self, name)}")
