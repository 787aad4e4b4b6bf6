"""What a model folder's config.json says, reduced to what a Llama-family forward pass needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
MODULES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
"""The seven linear modules of a layer, all of which an adapter may target."""


class ModelUnusable(Exception):
    """The folder is not a model that this engine can run; the message says why in one sentence."""


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is "default", "linear" or "llama3"; the last four fields matter to the scaled kinds only."""

    kind: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_tokens: int = 8192


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a Llama-family model; `heads` of queries share `kv_heads` of keys and values."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary_size: int
    max_context_tokens: int
    rms_eps: float
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    rope: RopeConfig

    def shape_of(self, module: str) -> tuple[int, int]:
        """(out, in) of one of MODULES."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj": (queries, self.hidden),
            "self_attn.k_proj": (keys, self.hidden),
            "self_attn.v_proj": (keys, self.hidden),
            "self_attn.o_proj": (self.hidden, queries),
            "mlp.gate_proj": (self.intermediate, self.hidden),
            "mlp.up_proj": (self.intermediate, self.hidden),
            "mlp.down_proj": (self.hidden, self.intermediate),
        }[module]

    def has_bias(self, module: str) -> bool:
        return self.attention_bias if module.startswith("self_attn.") else self.mlp_bias


def read_config(folder: Path) -> ModelConfig:
    """Parse `folder`/config.json. Raises ModelUnusable naming what is missing or not supported."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text())
        return parse_config(raw)
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
    except KeyError as error:
        raise ModelUnusable(f"{path} lacks the field {error}") from error


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Raises ModelUnusable for what would give silently wrong numbers, KeyError for a missing field."""
    _refuse_unsupported(raw)
    heads = raw["num_attention_heads"]
    return ModelConfig(
        layers=raw["num_hidden_layers"],
        hidden=raw["hidden_size"],
        intermediate=raw["intermediate_size"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        vocabulary_size=raw["vocab_size"],
        max_context_tokens=raw["max_position_embeddings"],
        rms_eps=raw["rms_norm_eps"],
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        attention_bias=bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        rope=_parse_rope(raw),
    )


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    named = raw.get("architectures") or [f"model_type {raw.get('model_type')!r}"]
    if named[0] not in ARCHITECTURES:
        raise ModelUnusable(f"{named[0]} is not of the Llama family ({', '.join(ARCHITECTURES)})")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelUnusable(f"the activation {raw['hidden_act']!r} is not supported, only 'silu'")
    if raw.get("sliding_window") is not None:
        raise ModelUnusable("sliding-window attention is not supported")
    if raw.get("quantization_config"):
        raise ModelUnusable("the weights are quantized; only 16- or 32-bit folders are supported")


def _parse_rope(raw: Mapping[str, Any]) -> RopeConfig:
    """Both spellings: `rope_theta` beside `rope_scaling`, and the newer `rope_parameters` with all of it."""
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise ModelUnusable(f"the RoPE variant {kind!r} is not supported (default, linear, llama3)")
    if kind != "default" and "factor" not in scaling:
        raise ModelUnusable(f"the RoPE variant {kind!r} needs a factor")
    return RopeConfig(
        kind=kind,
        theta=float(scaling.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        factor=float(scaling.get("factor") or 1.0),
        low_freq_factor=float(scaling.get("low_freq_factor") or 1.0),
        high_freq_factor=float(scaling.get("high_freq_factor") or 4.0),
        original_context_tokens=int(scaling.get("original_max_position_embeddings") or 8192),
    )
