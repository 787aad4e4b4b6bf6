"""The timing table of an engine without a model."""

from __future__ import annotations

import msgspec


class TimedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults are fleet A: a step takes 50 ms up to 32 rows, plus the prompt tokens that it computes at 8,000
    a second; 32 sequences of 2,000 tokens fill the KV cache; adapters come over one serial link. `eos_one_in`
    n ends about one token in n with an eos id; 0: never."""

    base_model_hash: str
    slots: int = 250
    rank_limit: int = 16
    max_rows: int = 32
    max_context_tokens: int = 4096
    vocabulary_size: int = 320
    lowest_token_id: int = 3
    eos_token_ids: tuple[int, ...] = (2,)
    eos_one_in: int = 0
    step_s: float = 0.050
    prefill_tokens_per_s: float = 8000.0
    prefill_chunk_tokens: int = 512
    kv_tokens: int = 64_000
    prefix_cache: bool = True
    link_bytes_per_s: float = 10e9
    kv_bytes_per_token: int = 524_288

    @classmethod
    def instant(cls, base_model_hash: str, *, slots: int = 8) -> TimedPolicy:
        """Takes no time at all: for tests of what surrounds an engine."""
        return cls(
            base_model_hash=base_model_hash,
            slots=slots,
            step_s=0.0,
            prefill_tokens_per_s=float("inf"),
            link_bytes_per_s=float("inf"),
        )
