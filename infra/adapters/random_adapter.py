"""Adapters without meaning but of full size: every projection of every layer, for measuring speed and load."""

from __future__ import annotations

from pathlib import Path

import torch

from infra.adapters.peft_folder import LoraConfig, write_adapter
from shared.base_model import describe

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def write_random_adapter(model_folder: Path, out: Path, rank: int, seed: int) -> Path:
    """A PEFT folder with A [rank, in] and B [out, rank] of small random numbers; returns `out`."""
    base = describe(model_folder, model_folder.name, (rank,))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(base.layers):
        for name, shape in base.modules.items():
            group = "self_attn" if name in _ATTENTION else "mlp"
            prefix = f"base_model.model.model.layers.{layer}.{group}.{name}"
            sides = {"A": (rank, shape.in_features), "B": (shape.out_features, rank)}
            for side, size in sides.items():
                drawn = torch.randn(size, generator=generator) * 0.02
                tensors[f"{prefix}.lora_{side}.weight"] = drawn
    write_adapter(out, LoraConfig(rank=rank, alpha=rank, target_modules=tuple(base.modules)), tensors)
    return out
