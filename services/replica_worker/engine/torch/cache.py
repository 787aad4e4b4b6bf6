"""The keys and values of every running sequence, in blocks of a fixed size, allocated once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.replica_worker.engine.blocks import BLOCK_TOKENS

from .config import ModelConfig


class KvCache:
    """`keys` and `values` are [layers, blocks * BLOCK_TOKENS, kv_heads, head_dim]: one place per token.

    Memory is reserved, not filled: a page that no sequence has reached costs nothing on a CPU. What a
    former sequence left in a block is never read, because readers stop at their own length.
    """

    def __init__(self, config: ModelConfig, blocks: int, like: torch.Tensor) -> None:
        shape = (config.layers, blocks * BLOCK_TOKENS, config.kv_heads, config.head_dim)
        self.keys = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.values = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.bytes_per_token = 2 * config.layers * config.kv_heads * config.head_dim * like.element_size()

    def places(self, blocks: Sequence[int], tokens: int) -> torch.Tensor:
        """[tokens]: where the first `tokens` tokens of a sequence with these blocks are."""
        first = torch.tensor(blocks, dtype=torch.int64, device=self.keys.device).unsqueeze(1) * BLOCK_TOKENS
        within = torch.arange(BLOCK_TOKENS, dtype=torch.int64, device=self.keys.device)
        return (first + within).flatten()[:tokens]

    def write(self, layer: int, places: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store keys and values [n, kv_heads, head_dim] at places [n]."""
        self.keys[layer].index_copy_(0, places, keys)
        self.values[layer].index_copy_(0, places, values)

    def read(self, layer: int, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [1, kv_heads, tokens, head_dim] at places [tokens]."""
        keys, values = self.keys[layer].index_select(0, places), self.values[layer].index_select(0, places)
        return keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)
