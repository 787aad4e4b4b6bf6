"""One request in a replica's engine, and the shape of that engine."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

BLOCK_TOKENS = 16


class BatchShape(msgspec.Struct, frozen=True, kw_only=True):
    """The largest prompt part of a step, and the KV cache, in tokens."""

    max_rows: int = 32
    chunk_tokens: int = 512
    kv_tokens: int = 64_000
    prefix_cache: bool = True


@dataclass(eq=False, slots=True)
class Sequence:
    """One request in the engine. `produced` is exact whenever it is not decoding; `Batch.produced` always is."""

    adapter: object
    prompt_tokens: int
    output_tokens: int
    produced: int = 0
    arrival: int = -1
    cached: int = 0
    kept: int = 0
    """Tokens that it will find in the cache of what it computed before it left."""
    served_step: int = -1
    since_step: int = -1
    """The step that produced token number `produced`; -1: it does not decode."""
    turn: int = 0
    """Counts its stays in a row: what was planned for an earlier one is void."""

    @property
    def known(self) -> int:
        return self.prompt_tokens + self.produced


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
