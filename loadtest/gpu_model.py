"""A random Llama of a given shape in a model folder: for measuring an engine where no model is to be had."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A Llama with as many key and value heads as heads, and what is done with it."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    slots: int
    prompt_tokens: int
    steps: int
    kv_bytes: int
    chunk_tokens: int
    copy_bytes: int

    @property
    def files_bytes(self) -> int:
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return 2 * (self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden)

    @property
    def step_bytes(self) -> int:
        """What a step reads of the weights: all but the embeddings, of which it takes a row per token."""
        return self.files_bytes - 2 * self.vocabulary * self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * 2 * self.layers * self.hidden


SHAPES = {
    "7b": Shape(
        layers=32, hidden=4096, intermediate=11008, heads=32, vocabulary=32000, slots=250, prompt_tokens=1025,
        steps=32, kv_bytes=24 << 30, chunk_tokens=2048, copy_bytes=4 << 30,
    ),
    "tiny": Shape(
        layers=2, hidden=128, intermediate=256, heads=4, vocabulary=1200, slots=32, prompt_tokens=17,
        steps=2, kv_bytes=1 << 28, chunk_tokens=128, copy_bytes=1 << 20,
    ),
}  # fmt: skip


def write_random_model(folder: Path, shape: Shape, device: torch.device) -> Path:
    """A Llama's folder of this shape in bfloat16, one file a layer; returns `folder`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_config(shape)))
    (folder / "tokenizer.json").write_text("{}")
    ends = {
        "model.embed_tokens.weight": (shape.vocabulary, shape.hidden),
        "model.norm.weight": (shape.hidden,),
        "lm_head.weight": (shape.vocabulary, shape.hidden),
    }
    files = {"ends": ends, **{f"layer-{layer}": _layer(shape, layer) for layer in range(shape.layers)}}
    torch.manual_seed(0)
    for name, sizes in files.items():
        tensors = {tensor: _random(size, device).cpu() for tensor, size in sizes.items()}
        save_file(tensors, folder / f"{name}.safetensors", metadata={"format": "pt"})
    places = {tensor: f"{name}.safetensors" for name, sizes in files.items() for tensor in sizes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def _layer(shape: Shape, layer: int) -> dict[str, tuple[int, ...]]:
    prefix, wide = f"model.layers.{layer}", (shape.intermediate, shape.hidden)
    return {
        f"{prefix}.input_layernorm.weight": (shape.hidden,),
        f"{prefix}.post_attention_layernorm.weight": (shape.hidden,),
        **{f"{prefix}.self_attn.{name}_proj.weight": (shape.hidden, shape.hidden) for name in "qkvo"},
        **{f"{prefix}.mlp.{name}_proj.weight": wide for name in ("gate", "up")},
        f"{prefix}.mlp.down_proj.weight": wide[::-1],
    }


def _random(size: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Norms around one, everything else small enough for a deep stack to stay finite."""
    drawn = torch.randn(size, device=device, dtype=torch.float32) * 0.02
    return (drawn + 1 if len(size) == 1 else drawn).to(torch.bfloat16)


def _config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": shape.vocabulary,
    }
