"""Rotary position embeddings: the angle tables of the supported variants, and their application."""

from __future__ import annotations

import math

import torch

from .config import RopeConfig


def rope_tables(
    config: RopeConfig, head_dim: int, context_tokens: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin), each [context_tokens, 1, head_dim] in `dtype`; angles are computed in float32."""
    frequencies = _frequencies(config, head_dim)
    angles = torch.outer(torch.arange(context_tokens, dtype=torch.float32), frequencies)
    both_halves = torch.cat((angles, angles), dim=-1).unsqueeze(1)
    return both_halves.cos().to(dtype), both_halves.sin().to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn x [n, heads, head_dim] by its rows' angles, cos and sin [n, 1, head_dim]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


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
