"""From a file's numbers to an adapter as it lies in memory, on a CPU: widened, rounded, ordered and checked at once."""

from __future__ import annotations

import numpy as np

from .adapt import RANKS
from .arithmetic import ZERO, fma, splat, total
from .compiled import compiled
from .lanes import WIDTH, load, store

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2
"""How the numbers of a side stand in the file."""

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""What the bits of each float16 mean."""


@compiled
def _widen(wide, words, kind, halves):
    bits = wide.view(np.uint32)
    if kind == FLOAT32:
        for i in range(wide.shape[0]):
            bits[i] = np.uint32(words[2 * i]) | np.uint32(words[2 * i + 1]) << np.uint32(16)
    elif kind == FLOAT16:
        for i in range(wide.shape[0]):
            wide[i] = halves[words[i]]
    else:
        for i in range(wide.shape[0]):
            bits[i] = np.uint32(words[i]) << np.uint32(16)


@compiled
def _pack_a(into, at, wide, ranks):
    """[r / 4, in / 16, 4, 16]: four ranks of sixteen inputs side by side. `wide` is [rank, in], flat."""
    rank, padded = ranks
    width = wide.shape[0] // rank
    checks = splat(ZERO)
    for first in range(0, padded, RANKS):
        for j in range(0, width, WIDTH):
            for r in range(first, first + RANKS):
                store(into, at, load(wide, r * width + j) if r < rank else splat(ZERO))
                checks = fma(load(into, at), splat(ZERO), checks)
                at += WIDTH
    return total(checks) == ZERO


@compiled
def _pack_b(into, at, wide, ranks):
    """[out / 16, r, 16]: all ranks of sixteen outputs side by side. `wide` is [out, rank], flat."""
    rank, padded = ranks
    checks, turned = splat(ZERO), np.zeros(WIDTH, np.float32)
    for begin in range(0, wide.shape[0], rank * WIDTH):
        for r in range(padded):
            for lane in range(WIDTH):
                turned[lane] = wide[begin + lane * rank + r] if r < rank else ZERO
            store(into, at, load(turned, 0))
            checks = fma(load(into, at), splat(ZERO), checks)
            at += WIDTH
    return total(checks) == ZERO


@compiled
def pack(into, words, sides, halves):
    """`Kernels.pack`; the first side that is not finite, or how many there are. `sides` [n, 7]: from which word on,
    how, rank, width, where to, padded rank, and whether it is B."""
    for number in range(sides.shape[0]):
        begin, kind, rank, width, at, padded, turned = sides[number]
        wide = np.empty(rank * width, np.float32)
        _widen(wide, words[begin:], kind, halves)
        finite = _pack_b(into, at, wide, (rank, padded)) if turned else _pack_a(into, at, wide, (rank, padded))
        if not finite:
            return number
    return sides.shape[0]
