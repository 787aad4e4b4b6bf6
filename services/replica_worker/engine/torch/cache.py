"""The keys and values of every running sequence: one fixed place per row, allocated once."""

from __future__ import annotations

import torch

from .config import ModelConfig


class KvCache:
    """`keys` and `values` are [layers, rows, kv_heads, context, head_dim].

    Memory is reserved, not filled: a page that no sequence has reached costs nothing on a CPU. What a
    former sequence left in a row is never read, because readers stop at their own length.
    """

    def __init__(self, config: ModelConfig, rows: int, context_tokens: int, like: torch.Tensor) -> None:
        shape = (config.layers, rows, config.kv_heads, context_tokens, config.head_dim)
        self.keys = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.values = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.bytes_per_token = 2 * config.layers * config.kv_heads * config.head_dim * like.element_size()

    def write(
        self, layer: int, at: tuple[torch.Tensor, torch.Tensor], keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store keys and values [n, kv_heads, head_dim] at (rows [n], positions [n])."""
        rows, positions = at
        self.keys[layer][rows, :, positions] = keys
        self.values[layer][rows, :, positions] = values

    def read(self, layer: int, row: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views [1, kv_heads, tokens, head_dim] of a row's first `tokens` positions."""
        return (
            self.keys[layer, row : row + 1, :, :tokens],
            self.values[layer, row : row + 1, :, :tokens],
        )
