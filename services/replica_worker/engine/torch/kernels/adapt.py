"""The adapted layer on a CPU: y[i] += scale · B (A x[i]) with A and B of row i's own slot.

Two rows of one slot are computed together, so that its weights are widened once for both; each row's own
arithmetic is the same in a pair and alone. The weights are read once, front to back (see `CpuKernels.pack_a`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arithmetic import ZERO, add, fma, splat, total
from .compiled import compiled
from .lanes import WIDTH, load, spread, store
from .port import MOST_RANKS

RANKS = 4
"""Ranks are computed four at a time: `port.RANK_MULTIPLE` must be a multiple of it."""


class _Side(NamedTuple):
    """A or B of one module in one slot: `rank` ranks from weights[at] on."""

    weights: Any
    at: Any
    rank: Any


@compiled
def _shrink_one(low, side, x, scale):
    """low[0, :rank] = scale · A x[0]."""
    weights, at, rank = side
    for r in range(0, rank, RANKS):
        s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        for j in range(0, x.shape[1], WIDTH):
            mine = load(x, j)
            s0 = fma(mine, load(weights, at), s0)
            s1 = fma(mine, load(weights, at + WIDTH), s1)
            s2 = fma(mine, load(weights, at + 2 * WIDTH), s2)
            s3 = fma(mine, load(weights, at + 3 * WIDTH), s3)
            at += RANKS * WIDTH
        low[0, r] = total(s0) * scale
        low[0, r + 1] = total(s1) * scale
        low[0, r + 2] = total(s2) * scale
        low[0, r + 3] = total(s3) * scale


@compiled
def _shrink_two(low, side, x, scale):
    """low[:, :rank] = scale · A x of both rows of x."""
    weights, at, rank = side
    for r in range(0, rank, RANKS):
        s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        t0, t1, t2, t3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        for j in range(0, x.shape[1], WIDTH):
            mine, beside = load(x, j), load(x, x.shape[1] + j)
            a0, a1 = load(weights, at), load(weights, at + WIDTH)
            a2, a3 = load(weights, at + 2 * WIDTH), load(weights, at + 3 * WIDTH)
            s0, t0 = fma(mine, a0, s0), fma(beside, a0, t0)
            s1, t1 = fma(mine, a1, s1), fma(beside, a1, t1)
            s2, t2 = fma(mine, a2, s2), fma(beside, a2, t2)
            s3, t3 = fma(mine, a3, s3), fma(beside, a3, t3)
            at += RANKS * WIDTH
        low[0, r], low[1, r] = total(s0) * scale, total(t0) * scale
        low[0, r + 1], low[1, r + 1] = total(s1) * scale, total(t1) * scale
        low[0, r + 2], low[1, r + 2] = total(s2) * scale, total(t2) * scale
        low[0, r + 3], low[1, r + 3] = total(s3) * scale, total(t3) * scale


@compiled
def _expand_one(y, y_at, columns, side, low):
    """y[y_at …] += B low[0], `columns` numbers."""
    weights, at, rank = side
    for c in range(y_at, y_at + columns, WIDTH):
        s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        for r in range(0, rank, RANKS):
            s0 = fma(spread(low, r), load(weights, at), s0)
            s1 = fma(spread(low, r + 1), load(weights, at + WIDTH), s1)
            s2 = fma(spread(low, r + 2), load(weights, at + 2 * WIDTH), s2)
            s3 = fma(spread(low, r + 3), load(weights, at + 3 * WIDTH), s3)
            at += RANKS * WIDTH
        store(y, c, add(load(y, c), add(add(s0, s1), add(s2, s3))))


@compiled
def _expand_two(y, y_at, columns, side, low):
    """The same for two rows, from y_at[0] and from y_at[1] on."""
    weights, at, rank = side
    first, second = y_at
    for c in range(0, columns, WIDTH):
        s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        t0, t1, t2, t3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
        for r in range(0, rank, RANKS):
            b0, b1 = load(weights, at), load(weights, at + WIDTH)
            b2, b3 = load(weights, at + 2 * WIDTH), load(weights, at + 3 * WIDTH)
            s0, t0 = fma(spread(low, r), b0, s0), fma(spread(low, MOST_RANKS + r), b0, t0)
            s1, t1 = fma(spread(low, r + 1), b1, s1), fma(spread(low, MOST_RANKS + r + 1), b1, t1)
            s2, t2 = fma(spread(low, r + 2), b2, s2), fma(spread(low, MOST_RANKS + r + 2), b2, t2)
            s3, t3 = fma(spread(low, r + 3), b3, s3), fma(spread(low, MOST_RANKS + r + 3), b3, t3)
            at += RANKS * WIDTH
        store(y, first + c, add(load(y, first + c), add(add(s0, s1), add(s2, s3))))
        store(y, second + c, add(load(y, second + c), add(add(t0, t1), add(t2, t3))))


@compiled
def _widen(into, row, x, source_row):
    width = x.shape[1]
    for j in range(0, width, WIDTH):
        store(into, row * width + j, load(x, source_row * width + j))


@compiled
def adapt(y, x, stacks, packed, adapted):
    """`Kernels.adapt` for one part."""
    weights, places, scales = stacks
    first, columns = packed
    rows, slots = adapted
    wide, low = np.empty((2, x.shape[1]), np.float32), np.empty((2, MOST_RANKS), np.float32)
    i = 0
    while i < rows.shape[0]:
        slot, beside = slots[i], min(i + 1, rows.shape[0] - 1)
        paired = beside > i and slots[beside] == slot
        _widen(wide, 0, x, rows[i])
        _widen(wide, 1, x, rows[beside])
        y_at, beside_at = rows[i] * y.shape[1], rows[beside] * y.shape[1]
        for part in range(columns.shape[0]):
            a_at, b_at, rank = places[slot, first + part]
            side_a = _Side(weights, a_at + slot * weights.shape[1], rank)
            side_b = _Side(weights, b_at + slot * weights.shape[1], rank)
            if rank and paired:
                _shrink_two(low, side_a, wide, scales[slot, first + part])
                _expand_two(y, (y_at, beside_at), columns[part], side_b, low)
            elif rank:
                _shrink_one(low, side_a, wide, scales[slot, first + part])
                _expand_one(y, y_at, columns[part], side_b, low)
            y_at, beside_at = y_at + columns[part], beside_at + columns[part]
        i += 2 if paired else 1
