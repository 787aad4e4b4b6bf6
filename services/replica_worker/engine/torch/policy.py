"""What one reference engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

ENVIRONMENT: Mapping[str, str] = {"THP_MEM_ALLOC_ENABLE": "1"}
"""To be set before torch's first allocation, which reads it: large memory then comes in pages of 2 MB where the system
has them. Everything large is read from end to end in a step, and small pages take time to look up."""


class TorchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`threads` 0 leaves torch's own choice. `max_context_tokens` is cut to what the model allows. `kv_bytes` is
    the most that the KV cache takes; rows beyond what it holds wait, and a whole context must fit.
    `packed_weights`: base weights in bfloat16 lie as the CPU's products read them, see `packed.py`."""

    slots: int = 8
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 2048
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    device: str = "cpu"
    threads: int = 1
    prefill_chunk_tokens: int = 128
    kv_bytes: int = 2 << 30
    prefix_cache: bool = True
    packed_weights: bool = True
