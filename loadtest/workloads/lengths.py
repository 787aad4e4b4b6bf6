"""How many tokens a call brings and asks for."""

from __future__ import annotations

import math

import numpy as np

from loadtest.workloads.popularity import Ints
from loadtest.workloads.shape import Fixed, Geometric, Lengths, LogNormal, RecordedLengths


def pairs(lengths: Lengths | RecordedLengths, draw: np.random.Generator, count: int) -> tuple[Ints, Ints]:
    """Prompt and output tokens of `count` calls, all at least 1."""
    if isinstance(lengths, RecordedLengths):
        chosen = np.asarray(lengths.pairs, dtype=np.int64)[draw.integers(len(lengths.pairs), size=count)]
        return np.maximum(chosen[:, 0], 1), np.maximum(chosen[:, 1], 1)
    return _drawn(lengths.prompt, draw, count), _drawn(lengths.output, draw, count)


def _drawn(length: Fixed | LogNormal | Geometric, draw: np.random.Generator, count: int) -> Ints:
    if isinstance(length, Fixed):
        return np.full(count, length.tokens, dtype=np.int64)
    if isinstance(length, LogNormal):
        spread = math.log1p(length.cv**2)
        tokens = draw.lognormal(math.log(length.mean) - spread / 2, math.sqrt(spread), count)
        return np.clip(np.rint(tokens), 1, length.cap).astype(np.int64)
    return np.minimum(draw.geometric(1 / length.mean, count), length.cap).astype(np.int64)
