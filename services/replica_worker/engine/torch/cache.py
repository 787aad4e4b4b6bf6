"""The keys and values of every running sequence, in blocks of a fixed size, allocated once."""

from __future__ import annotations

import torch

from services.replica_worker.engine.blocks import BLOCK_TOKENS

from .config import ModelConfig
from .kernels.port import Kernels, LayerCache


class KvCache:
    """`layers` has the blocks of each layer. Which sequence has which is the schedule's business.

    Memory is reserved, not filled: a page that no sequence has reached costs nothing on a CPU. What a
    former sequence left in a block is never read, because readers stop at their own position.
    """

    def __init__(self, config: ModelConfig, blocks: int, like: torch.Tensor, kernels: Kernels) -> None:
        keys = (blocks, config.kv_heads, config.head_dim, BLOCK_TOKENS)
        values = (blocks, config.kv_heads, BLOCK_TOKENS, config.head_dim)
        self.layers = [
            LayerCache(*(kernels.view(torch.empty(shape, dtype=like.dtype, device=like.device)) for shape in pair))
            for pair in [(keys, values)] * config.layers
        ]


def bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    return 2 * config.layers * config.kv_heads * config.head_dim * dtype.itemsize
