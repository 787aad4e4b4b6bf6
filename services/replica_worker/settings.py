"""What a replica is told by its environment, once."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shared.messages.identity import is_subject_token
from shared.store.access import S3Access

PREFIX = "LORAFLEET_WORKER_"

_AT_LEAST = {
    "slots": 1, "rank_limit": 1, "max_rows": 1, "max_context_tokens": 1, "queue_limit": 1,
    "ram_budget_bytes": 1, "disk_budget_bytes": 1, "threads": 0, "kv_budget_bytes": 0, "drain_deadline_s": 0,
    "merged_wait_s": 0, "warm_adapters": 0, "warm_deadline_s": 0,
}  # fmt: skip


class Settings(S3Access, frozen=True, kw_only=True):
    """Raises ValueError for values that no replica could run with."""

    replica_id: str
    model_folder: Path
    store_url: str
    cache_folder: Path
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    engine: Literal["torch", "vllm", "timed"] = "torch"
    slots: int = 8
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2_048
    ram_budget_bytes: int = 1 << 30
    disk_budget_bytes: int = 8 << 30
    threads: int = 0
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_budget_bytes: int = 0
    """For the keys and values of all contexts; 0: what the engine chooses."""
    packed_weights: bool = True
    """Torch engine: base weights in the order in which products read them. False: as they lie in the file, slower."""
    gpu_kind: str = ""
    """The kind of accelerator, as placement's table of rates has it; "": what the engine finds, "cpu" without one."""
    probe_port: int = 0
    tracing: str = ""
    """Where spans of traced requests go, an OTLP endpoint; "": nowhere."""
    merged: str = ""
    """The id or digest of the one adapter to serve, merged into the base's weights; "": any adapter, in slots."""
    merged_wait_s: float = 600.0
    """How long to wait for that adapter to be active, before this process ends."""
    queue_limit: int = 256
    """Requests that may wait, for an adapter or for a row, before more are refused."""
    drain_deadline_s: float = 20.0
    warm_adapters: int = 32
    """Of the adapters planned for its slots, how many must be there before it takes requests that others can take."""
    warm_deadline_s: float = 30.0
    """After so long it takes them all the same."""

    def __post_init__(self) -> None:
        if not is_subject_token(self.replica_id):
            raise ValueError(f"REPLICA_ID {self.replica_id!r} must be 1 to 64 of A-Z a-z 0-9 _ -")
        if self.merged and self.engine != "torch":
            raise ValueError(
                f"MERGED needs ENGINE=torch, not {self.engine}: `lorafleet merge` writes a folder for others"
            )
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name.upper()} must be at least {least}, not {getattr(self, name)}")
