"""Bytes: of an adapter, of the base, of a token in the KV cache, and how many adapters a GPU has room for.

Every function's first line is its formula; the letters are those of config.json, sizes are the spec's (section 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadtest.capacity.model import ATTENTION, MLP, Model

GB = 1e9


def matrix_values(rank: int, inputs: int, outputs: int) -> int:
    """rank × (inputs + outputs): LoRA's A is rank × inputs and its B outputs × rank (Hu et al., 2021)."""
    return rank * (inputs + outputs)


def layer_values(model: Model, rank: int, targets: Sequence[str]) -> int:
    """Σ over target modules of matrix_values."""
    return sum(matrix_values(rank, *model.sides(target)) for target in targets)


def adapter_values(model: Model, rank: int, targets: Sequence[str]) -> int:
    """layers × layer_values (num_hidden_layers)."""
    return model.layers * layer_values(model, rank, targets)


def adapter_bytes(model: Model, rank: int, targets: Sequence[str]) -> int:
    """adapter_values × bytes of a value (torch_dtype: 2 for 16 bit)."""
    return adapter_values(model, rank, targets) * model.value_bytes


def update_share(model: Model, rank: int) -> float:
    """rank × (inputs + outputs) ÷ (inputs × outputs): multiply-adds of q_proj's update over those of q_proj itself."""
    inputs, outputs = model.sides("q_proj")
    return matrix_values(rank, inputs, outputs) / (inputs * outputs)


def base_values(model: Model) -> int:
    """vocabulary × hidden (twice unless tied) + layers × (Σ inputs × outputs + 2 × hidden) + hidden, as in Llama."""
    tables = model.vocabulary * model.hidden * (1 if model.tied else 2)
    products = sum(math.prod(model.sides(target)) for target in ATTENTION + MLP)
    return tables + model.layers * (products + 2 * model.hidden) + model.hidden


def base_bytes(model: Model) -> float:
    """base_values × bytes of a value, up to the next whole GB: what it takes of a GPU, buffers included."""
    return math.ceil(base_values(model) * model.value_bytes / GB) * GB


def kv_token_bytes(model: Model) -> int:
    """2 (key and value) × layers × num_key_value_heads × head_dim × bytes of a value."""
    return 2 * model.layers * model.kv_heads * model.head * model.value_bytes


def kv_bytes(model: Model, rows: int, context_tokens: int) -> int:
    """kv_token_bytes × requests at once × tokens reserved for each."""
    return kv_token_bytes(model) * rows * context_tokens


def room_bytes(gpu_bytes: float, base_bytes: float, kv_bytes: float, work_bytes: float) -> float:
    """GPU − base − KV cache − work space: what is left for adapters, below 0 if not even the rest fits."""
    return gpu_bytes - base_bytes - kv_bytes - work_bytes


def fitting(room_bytes: float, adapter_bytes: float) -> int:
    """⌊room ÷ bytes of an adapter⌋, 0 without room."""
    return max(0, math.floor(room_bytes / adapter_bytes))
