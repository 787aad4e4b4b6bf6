"""Small LoRA files for a small base model, right or wrong in one chosen way; no tensor library needed to serve them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save

from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord, ModuleShape

HIDDEN, KV, MLP, LAYERS = 16, 8, 24, 2
BLOCK_OF = {
    "q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
    "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp",
}  # fmt: skip
SHAPES = {
    "q_proj": (HIDDEN, HIDDEN), "k_proj": (HIDDEN, KV), "v_proj": (HIDDEN, KV), "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (HIDDEN, MLP), "up_proj": (HIDDEN, MLP), "down_proj": (MLP, HIDDEN),
}  # fmt: skip
"""(in, out) of every layer of the base."""

BASE = BaseModelRecord(
    base_model_hash=hashlib.sha256(b"small base").hexdigest(),
    name="small-base",
    layers=LAYERS,
    modules={name: ModuleShape(in_features=i, out_features=o) for name, (i, o) in SHAPES.items()},
    rank_classes=(8, 16),
    max_context_tokens=2048,
)

Tensors = dict[str, np.ndarray[Any, Any]]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Another seed gives other bytes."""

    seed: int = 0
    rank: int = 4
    targets: tuple[str, ...] = ("q_proj", "down_proj")
    rank_pattern: Mapping[str, int] = {}
    dtype: type[np.generic] = np.float16
    layers: tuple[int, ...] = (0, 1)


def name_of(layer: int, module: str, side: str) -> str:
    return f"base_model.model.model.layers.{layer}.{BLOCK_OF[module]}.{module}.lora_{side}.weight"


def tensors_of(recipe: Recipe) -> Tensors:
    """A [r, in] and B [out, r] of every target in every layer of the recipe."""
    draw = np.random.default_rng(recipe.seed)
    tensors: Tensors = {}
    for layer in recipe.layers:
        for module in recipe.targets:
            rank = recipe.rank_pattern.get(module, recipe.rank)
            inner, out = SHAPES.get(module, (HIDDEN, HIDDEN))
            tensors[name_of(layer, module, "A")] = draw.standard_normal((rank, inner)).astype(recipe.dtype)
            tensors[name_of(layer, module, "B")] = draw.standard_normal((out, rank)).astype(recipe.dtype)
    return tensors


def file_of(recipe: Recipe | None = None, **changed: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a safetensors file; `changed` replaces or adds tensors by name."""
    return save({**tensors_of(recipe or Recipe()), **changed}, {"format": "pt"})


def announcement(file: bytes, **changes: Any) -> AdapterRegistered:
    """What a pipeline says about a file made by the default recipe."""
    said: dict[str, Any] = {
        "adapter_id": "acme-support-1",
        "tenant_id": "acme",
        "version": "1",
        "base_model_hash": BASE.base_model_hash,
        "rank": 4,
        "alpha": 8.0,
        "target_modules": ("q_proj", "down_proj"),
        "weights_uri": "file:///nowhere/adapter_model.safetensors",
        "checksum": hashlib.sha256(file).hexdigest(),
    }
    return AdapterRegistered(**{**said, **changes})


def peft_config(announced: AdapterRegistered, **changes: Any) -> bytes:
    """The adapter_config.json that PEFT would write beside it."""
    targets = announced.target_modules
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "base_model_name_or_path": None,
        "r": announced.rank,
        "lora_alpha": announced.alpha,
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "use_rslora": announced.use_rslora,
        "use_dora": False,
        "bias": "none",
        "modules_to_save": None,
        "rank_pattern": dict(announced.rank_pattern),
        "alpha_pattern": dict(announced.alpha_pattern),
    }
    return json.dumps({**config, **changes}).encode()


def write_folder(folder: Path, file: bytes, announced: AdapterRegistered) -> AdapterRegistered:
    """A PEFT folder on disk, and the announcement that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(file)
    (folder / "adapter_config.json").write_bytes(peft_config(announced))
    return msgspec.structs.replace(announced, weights_uri=folder.as_uri())


def crafted(header: Any, body: bytes = b"", *, claimed: int | None = None) -> bytes:
    """A safetensors file with exactly this header (bytes as they are, else JSON) and a length that may lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if claimed is None else claimed).to_bytes(8, "little") + text + body
