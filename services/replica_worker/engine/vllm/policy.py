"""What one vLLM engine is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class VllmPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`threads` 0 leaves vLLM's own choice, `kv_budget_bytes` 0 too; `max_context_tokens` is cut to what the
    model allows. `scratch_folder` is emptied at every start: prepared adapters lie there, as vLLM reads files."""

    scratch_folder: Path
    slots: int = 8
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2048
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    threads: int = 0
    kv_budget_bytes: int = 0
    prefill_chunk_tokens: int = 512
    block_tokens: int = 32
