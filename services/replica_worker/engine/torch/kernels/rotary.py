"""Rotary embedding of a step's queries and keys, and the keys' and values' way into the cache, on a CPU."""

from __future__ import annotations

import numpy as np

from .arithmetic import fma, mul, splat
from .compiled import compiled
from .lanes import WIDTH, load, store

_MINUS = np.float32(-1.0)


@compiled
def _rotate(x, at, rope, position):
    """One head from x[at] on, in place: its two halves are the coordinates of as many planes."""
    cos, sin = rope
    half = cos.shape[1]
    for d in range(0, half, WIDTH):
        c, s = load(cos, position * half + d), load(sin, position * half + d)
        low, high = load(x, at + d), load(x, at + half + d)
        store(x, at + d, fma(low, c, mul(mul(high, s), splat(_MINUS))))
        store(x, at + half + d, fma(high, c, mul(low, s)))


@compiled
def place(qkv, rows, rope, cache):
    """`Kernels.place`."""
    positions, sequences, tables, _ = rows
    keys, values = cache
    _, kv_heads, head_dim, tokens = keys.shape
    key_at = qkv.shape[1] - 2 * kv_heads * head_dim
    for row in range(positions.shape[0]):
        position = positions[row]
        for head in range(key_at // head_dim + kv_heads):
            _rotate(qkv, row * qkv.shape[1] + head * head_dim, rope, position)
        block, within = tables[sequences[row], position // tokens], position % tokens
        for head in range(kv_heads):
            source = key_at + head * head_dim
            for d in range(head_dim):
                keys[block, head, d, within] = qkv[row, source + d]
                values[block, head, within, d] = qkv[row, source + kv_heads * head_dim + d]
