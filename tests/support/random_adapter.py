"""PEFT adapter files with random weights for the tiny model: strong enough to change every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file

from services.replica_worker.engine.port import AdapterSpec
from tests.support.tiny_model import LAYERS, module_shapes

ALL_TARGETS = tuple(name.split(".")[1] for name in module_shapes())


class RandomAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """Another seed is another adapter. `std` of A and B; `ranks` overrides the rank by module name."""

    seed: int
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ALL_TARGETS
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}
    std: float = 0.15
    dtype: torch.dtype = torch.bfloat16


Shapes = Mapping[str, tuple[int, int]]
"""(out, in) of every adaptable module of one layer."""


def write_adapter(
    folder: Path, adapter: RandomAdapter, base_model_hash: str, shapes: Shapes | None = None
) -> tuple[Path, AdapterSpec]:
    """Write `folder`/<seed>.safetensors; returns its path and the spec that describes it. `shapes`: of another
    model than the tiny one."""
    path = folder / f"{adapter.seed}.safetensors"
    save_file(adapter_tensors(adapter, shapes), str(path))
    spec = AdapterSpec(
        adapter_id=f"adapter-{adapter.seed}",
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        base_model_hash=base_model_hash,
        rank=adapter.rank,
        alpha=adapter.alpha,
        target_modules=adapter.targets,
        use_rslora=adapter.use_rslora,
        rank_pattern=adapter.rank_pattern,
        alpha_pattern=adapter.alpha_pattern,
    )
    return path, spec


def adapter_tensors(adapter: RandomAdapter, shapes: Shapes | None = None) -> dict[str, torch.Tensor]:
    """A [r, in] and B [out, r] of every target in every layer, under PEFT's names."""
    generator = torch.Generator().manual_seed(adapter.seed)
    tensors = {}
    for layer in range(LAYERS):
        for module, (out, inner) in (shapes or module_shapes()).items():
            name = module.split(".")[1]
            if name not in adapter.targets:
                continue
            rank = adapter.rank_pattern.get(name, adapter.rank)
            prefix = f"base_model.model.model.layers.{layer}.{module}"
            for side, shape in (("A", (rank, inner)), ("B", (out, rank))):
                drawn = torch.randn(shape, generator=generator) * adapter.std
                tensors[f"{prefix}.lora_{side}.weight"] = drawn.to(adapter.dtype)
    return tensors
