"""Rotary position embeddings: the angle tables of the supported variants."""

from __future__ import annotations

import math

import torch

from .config import RopeConfig


def rope_tables(config: RopeConfig, head_dim: int, context_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin), each [context_tokens, head_dim / 2] in float32."""
    frequencies = _frequencies(config, head_dim)
    angles = torch.outer(torch.arange(context_tokens, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def _frequencies(config: RopeConfig, head_dim: int) -> torch.Tensor:
    """[head_dim / 2] radians per position."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    plain = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return plain / config.factor
    return _llama3(config, plain) if config.kind == "llama3" else plain


def _llama3(config: RopeConfig, plain: torch.Tensor) -> torch.Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between blended linearly."""
    wavelengths = 2 * math.pi / plain
    turns = config.original_context_tokens / wavelengths
    span = config.high_freq_factor - config.low_freq_factor
    keep = ((turns - config.low_freq_factor) / span).clamp(0.0, 1.0)
    return (1 - keep) * plain / config.factor + keep * plain
