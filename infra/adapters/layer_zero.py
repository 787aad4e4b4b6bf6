"""The part of a Llama that a canary needs: layer 0 up to its MLP's first neuron, layer 1's input, the output layer.

Everything is float32 on the CPU. Only these tensors are read, so a 7B model costs its embedding and head.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open

_LAYER = "model.layers.0."
_NEXT_NORM = "model.layers.1.input_layernorm.weight"
_FIRST_NEURON = tuple(f"{_LAYER}mlp.{name}.weight" for name in ("gate_proj", "up_proj"))
_LAYER_PARTS = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
)


class NextAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Layer 1's attention: its input norm's weight [hidden], and its heads."""

    norm: torch.Tensor
    heads: int
    kv_heads: int
    head_width: int


class LayerZero:
    """Layer 0's attention half and the output layer of a Hugging Face Llama folder.

    `hidden`, `intermediate` and `vocabulary` are sizes; `final_norm` is [hidden], `head` is
    [vocabulary, hidden]; `first_neuron` is [2, hidden], the MLP's first rows of gate and up. Raises
    KeyError naming the tensor that a folder of another family lacks.
    """

    def __init__(self, model_folder: Path) -> None:
        self._config: dict[str, Any] = json.loads((model_folder / "config.json").read_text())
        layer_names = [f"{_LAYER}{part}.weight" for part in _LAYER_PARTS]
        outer_names = ["model.embed_tokens.weight", "model.norm.weight", _NEXT_NORM]
        if not self._config.get("tie_word_embeddings"):
            outer_names.append("lm_head.weight")
        self._weights = _read(model_folder, [*layer_names, *outer_names], whole=True)
        self.first_neuron = torch.cat(list(_read(model_folder, [*_FIRST_NEURON], whole=False).values()))
        self._embedding = self._weights["model.embed_tokens.weight"]
        self.head = self._weights.get("lm_head.weight", self._embedding)
        self.final_norm = self._weights["model.norm.weight"]
        self.vocabulary, self.hidden = self._embedding.shape
        self.intermediate = int(self._config["intermediate_size"])
        evenly_split = self.hidden // int(self._config["num_attention_heads"])
        self._head_width = int(self._config.get("head_dim") or evenly_split)

    @property
    def next_attention(self) -> NextAttention:
        heads = int(self._config["num_attention_heads"])
        return NextAttention(
            norm=self._weights[_NEXT_NORM],
            heads=heads,
            kv_heads=int(self._config.get("num_key_value_heads") or heads),
            head_width=self._head_width,
        )

    @torch.inference_mode()
    def mlp_inputs(self, ids: torch.Tensor) -> torch.Tensor:
        """What layer 0's MLP sees for token ids [rows, tokens] that start at position 0: [rows, tokens, hidden]."""
        residual = self._embedding[ids]
        residual = residual + self._attention(self._normed(residual, "input_layernorm"))
        return self._normed(residual, "post_attention_layernorm")

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        query, key = (self._turned(self._heads(x, name)) for name in ("q_proj", "k_proj"))
        value = self._heads(x, "v_proj")
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        )
        return mixed.transpose(1, 2).flatten(2) @ self._matrix("self_attn.o_proj").T

    def _heads(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """[rows, tokens, hidden] → [rows, heads of this projection, tokens, head width]."""
        projected = x @ self._matrix(f"self_attn.{name}").T
        return projected.view(*x.shape[:2], -1, self._head_width).transpose(1, 2)

    def _turned(self, heads: torch.Tensor) -> torch.Tensor:
        """Rotary positions 0, 1, 2 …; frequency scaling is left out, since it only changes the slow
        frequencies, which hardly turn within a calibration sequence."""
        half = heads.shape[-1] // 2
        frequencies = self._rope_theta() ** (-torch.arange(half) / half)
        angles = torch.arange(heads.shape[-2])[:, None] * frequencies
        first, second = heads[..., :half], heads[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        epsilon = self._config["rms_norm_eps"]
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * self._matrix(name)

    def _matrix(self, part: str) -> torch.Tensor:
        return self._weights[f"{_LAYER}{part}.weight"]

    def _rope_theta(self) -> float:
        nested = self._config.get("rope_parameters") or {}
        return float(self._config.get("rope_theta") or nested.get("rope_theta") or 10000.0)


def _read(model_folder: Path, names: list[str], *, whole: bool) -> dict[str, torch.Tensor]:
    """In the order of `names`; not `whole`: the first row of each."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(model_folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in set(names) & set(file.keys()):
                found[name] = (file.get_tensor(name) if whole else file.get_slice(name)[:1]).float()
    if missing := sorted(set(names) - found.keys()):
        raise KeyError(f"{model_folder} has no tensor {missing[0]}, so it is no Llama-family model")
    return {name: found[name] for name in names}
