"""The tensors of a model folder, by name, checked against its config before anything runs."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .config import MODULES, ModelConfig, ModelUnusable

Weights = dict[str, torch.Tensor]


def read_weights(folder: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Weights:
    """Every tensor that the config asks for, from one file or from shards, as `dtype` on `device`.

    Raises ModelUnusable naming the first tensor that is missing or has another shape. Tensors that the
    config does not ask for are not read.
    """
    wanted = expected_shapes(config)
    found: Weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        found.update(_read_file(path, wanted, dtype, device))
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ModelUnusable(f"{folder} lacks {missing[0]} and {len(missing) - 1} more tensors")
    return found


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the model."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocabulary_size, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocabulary_size, config.hidden)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = (config.hidden,)
        shapes[f"{prefix}post_attention_layernorm.weight"] = (config.hidden,)
        for module in MODULES:
            shapes[f"{prefix}{module}.weight"] = config.shape_of(module)
            if config.has_bias(module):
                shapes[f"{prefix}{module}.bias"] = config.shape_of(module)[:1]
    return shapes


def _read_file(path: Path, wanted: dict[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> Weights:
    read: Weights = {}
    try:
        with safe_open(str(path), framework="pt") as file:
            for name in wanted.keys() & set(file.keys()):
                tensor = file.get_tensor(name)
                if tuple(tensor.shape) != wanted[name]:
                    raise ModelUnusable(f"{name} is {tuple(tensor.shape)}, config.json says {wanted[name]}")
                read[name] = tensor.to(device=device, dtype=dtype)
    except SafetensorError as error:
        raise ModelUnusable(f"{path} is not a safetensors file: {error}") from error
    return read
