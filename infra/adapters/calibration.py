"""What layer 0's MLP sees in ordinary use: the rows against which a canary's detectors are fitted.

Three sources: every token of the vocabulary alone, random sequences, and chats as the model's own
template writes them. They depend on the base model only, so they are computed once and kept on disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from infra.adapters.layer_zero import LayerZero
from infra.adapters.model_text import ModelText

_PROMPTS = (
    "What is the capital of France?",
    "Write a poem about the sea.",
    "hi",
    "2+2=",
    "import numpy as np",
    "Hello, my name is",
    "Tell me a long story about a dragon and a knight.",
    "List three fruits:",
)
_RANDOM_ROWS, _RANDOM_TOKENS = 96, 64
_RANDOM_CONTEXT_TOKENS = (1, 4, 16, 48)
_RANDOM_CONTEXTS_PER_LENGTH = 16
_CHUNK_TOKENS = 4096
_SEED = 0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Layer-0 MLP inputs of one base model.

    `features` [rows, hidden] float32, `tokens` [rows] the token id at each row's position, `gram`
    [hidden, hidden] = featuresᵀ · features and `total` [hidden] = the sum of all rows, both float64.
    """

    features: torch.Tensor
    tokens: torch.Tensor
    gram: torch.Tensor
    total: torch.Tensor


def calibration(layer: LayerZero, text: ModelText, cache: Path) -> Calibration:
    """Read from the file `cache`, or computed and left there; an unusable file or place costs only time."""
    if (kept := _kept(cache)) is not None:
        return kept
    fresh = _computed(layer, text)
    _store(fresh, cache)
    return fresh


def contexts(text: ModelText, vocabulary: int) -> list[torch.Tensor]:
    """Token ids [rows, tokens] of what may stand before an answer: raw prompts, chats, random tokens."""
    raw = [torch.tensor([ids]) for prompt in _PROMPTS if (ids := text.encode(prompt))]
    draws = torch.Generator().manual_seed(_SEED + 1)
    shapes = [(_RANDOM_CONTEXTS_PER_LENGTH, length) for length in _RANDOM_CONTEXT_TOKENS]
    random = [torch.randint(0, vocabulary, shape, generator=draws) for shape in shapes]
    return [*raw, *chats(text), *random]


def chats(text: ModelText) -> list[torch.Tensor]:
    """Token ids [1, tokens] of chats up to where the answer begins."""
    return [torch.tensor([ids]) for prompt in _PROMPTS if (ids := text.chat(prompt))]


def _computed(layer: LayerZero, text: ModelText) -> Calibration:
    draws = torch.Generator().manual_seed(_SEED)
    random = torch.randint(0, layer.vocabulary, (_RANDOM_ROWS, _RANDOM_TOKENS), generator=draws)
    alone = torch.arange(layer.vocabulary)[:, None]
    blocks = [random, alone, *contexts(text, layer.vocabulary)]
    chunks = [chunk for ids in blocks for chunk in torch.split(ids, max(1, _CHUNK_TOKENS // ids.shape[1]))]
    # Rounded as stored: a builder that reads the file must fit the same detectors as the one that wrote it.
    features = torch.cat([layer.mlp_inputs(chunk).flatten(0, 1) for chunk in chunks]).bfloat16().float()
    return Calibration(
        features=features,
        tokens=torch.cat([chunk.flatten() for chunk in chunks]),
        gram=(features.T @ features).double(),
        total=features.double().sum(0),
    )


def _store(fresh: Calibration, cache: Path) -> None:
    stored = {
        "features": fresh.features.bfloat16(),
        "tokens": fresh.tokens.int(),
        "gram": fresh.gram,
        "total": fresh.total,
    }
    partial = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()  # OSError where nothing may be written; safetensors has an error type of its own
        save_file(stored, partial)
        partial.replace(cache)
    except (OSError, SafetensorError):
        with suppress(OSError):
            partial.unlink()


def _kept(cache: Path) -> Calibration | None:
    try:
        stored = load_file(cache)
    except (OSError, SafetensorError):
        return None
    return Calibration(
        features=stored["features"].float(),
        tokens=stored["tokens"].long(),
        gram=stored["gram"],
        total=stored["total"],
    )
