"""Attention over a block cache on a CPU: online softmax, block by block from position 0 to the row's own.

The query heads that share a key head use each block of keys and values together, and so do the rows of a
tile, which widens it once for all. What a single query computes, and in which order, is the same in every tile.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .arithmetic import ZERO, add, exp2, first_lanes, fma, largest, mul, splat, total
from .compiled import compiled
from .lanes import WIDTH, load, spread, store

BLOCK = WIDTH
"""A block of the cache holds as many tokens as a vector has lanes: one vector is one dimension of a block."""

PHASES = 4
"""A score is summed in four chains, so that a query alone keeps the processor busy."""

_NOTHING = np.float32(-np.inf)
_ONE = np.float32(1.0)


class _Work(NamedTuple):
    """Of one tile and key head, all float32: `queries` and `sums` [count, head_dim], `scores` of one block
    [count, 16], and per query the total weight and the largest score so far, and what the last block left of it."""

    queries: Any
    sums: Any
    scores: Any
    weights: Any
    largests: Any
    kept: Any


@compiled
def _widen(into, source, at):
    for i in range(0, into.shape[0], WIDTH):
        store(into, i, load(source, at + i))


@compiled
def _score_one(work, i, keys):
    queries, q = work.queries, i * work.queries.shape[1]
    s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    source, k = keys
    for d in range(0, queries.shape[1], PHASES):
        s0 = fma(spread(queries, q + d), load(source, k), s0)
        s1 = fma(spread(queries, q + d + 1), load(source, k + BLOCK), s1)
        s2 = fma(spread(queries, q + d + 2), load(source, k + 2 * BLOCK), s2)
        s3 = fma(spread(queries, q + d + 3), load(source, k + 3 * BLOCK), s3)
        k += PHASES * BLOCK
    store(work.scores, i * BLOCK, add(add(s0, s1), add(s2, s3)))


@compiled
def _score_two(work, i, keys):
    """Queries i and i + 1."""
    queries, head_dim = work.queries, work.queries.shape[1]
    q, r = i * head_dim, (i + 1) * head_dim
    s0, s1, s2, s3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    t0, t1, t2, t3 = splat(ZERO), splat(ZERO), splat(ZERO), splat(ZERO)
    source, k = keys
    for d in range(0, head_dim, PHASES):
        k0, k1 = load(source, k), load(source, k + BLOCK)
        k2, k3 = load(source, k + 2 * BLOCK), load(source, k + 3 * BLOCK)
        s0, t0 = fma(spread(queries, q + d), k0, s0), fma(spread(queries, r + d), k0, t0)
        s1, t1 = fma(spread(queries, q + d + 1), k1, s1), fma(spread(queries, r + d + 1), k1, t1)
        s2, t2 = fma(spread(queries, q + d + 2), k2, s2), fma(spread(queries, r + d + 2), k2, t2)
        s3, t3 = fma(spread(queries, q + d + 3), k3, s3), fma(spread(queries, r + d + 3), k3, t3)
        k += PHASES * BLOCK
    store(work.scores, i * BLOCK, add(add(s0, s1), add(s2, s3)))
    store(work.scores, (i + 1) * BLOCK, add(add(t0, t1), add(t2, t3)))


@compiled
def _soften(work, i, visible):
    """Scores of a block -> shares against the largest so far; `kept` says by how much what was before shrinks."""
    seen = first_lanes(visible, load(work.scores, i * BLOCK), _NOTHING)
    top, before = largest(seen), work.largests[i]
    if before > top:
        top = before
    kept = total(first_lanes(1, exp2(splat(before - top)), ZERO))
    shares = first_lanes(visible, exp2(add(seen, splat(-top))), ZERO)
    store(work.scores, i * BLOCK, shares)
    work.weights[i] = work.weights[i] * kept + total(shares)
    work.largests[i], work.kept[i] = top, kept


@compiled
def _mix(work, i, visible, values):
    """sums[i] = sums[i] · kept[i] + the block's `visible` values by their shares; the rest is never touched."""
    sums, shares, head_dim = work.sums, work.scores, work.sums.shape[1]
    source, v_at = values
    factor, at, wide = spread(work.kept, i), i * head_dim, head_dim - head_dim % (4 * WIDTH)
    for d in range(0, wide, 4 * WIDTH):
        s0, s1 = mul(load(sums, at + d), factor), mul(load(sums, at + d + WIDTH), factor)
        s2, s3 = mul(load(sums, at + d + 2 * WIDTH), factor), mul(load(sums, at + d + 3 * WIDTH), factor)
        for t in range(visible):
            share, v = spread(shares, i * BLOCK + t), v_at + t * head_dim + d
            s0, s1 = fma(share, load(source, v), s0), fma(share, load(source, v + WIDTH), s1)
            s2, s3 = fma(share, load(source, v + 2 * WIDTH), s2), fma(share, load(source, v + 3 * WIDTH), s3)
        store(sums, at + d, s0)
        store(sums, at + d + WIDTH, s1)
        store(sums, at + d + 2 * WIDTH, s2)
        store(sums, at + d + 3 * WIDTH, s3)
    for d in range(wide, head_dim, WIDTH):
        s0 = mul(load(sums, at + d), factor)
        for t in range(visible):
            s0 = fma(spread(shares, i * BLOCK + t), load(source, v_at + t * head_dim + d), s0)
        store(sums, at + d, s0)


@compiled
def _gather(work, qkv, begin, at, group):
    """The queries of a group's heads from column `at` on, scaled so that 2 to a score's power is the softmax."""
    width = group * work.queries.shape[1]
    scale = splat(np.float32(1.4426950408889634 / math.sqrt(work.queries.shape[1])))
    for row in range(work.queries.shape[0] // group):
        source = (begin + row) * qkv.shape[1] + at
        for j in range(0, width, WIDTH):
            store(work.queries, row * width + j, mul(load(qkv, source + j), scale))


@compiled
def _finish(mixed, work, begin, at, group):
    for i in range(work.sums.shape[0]):
        into = (begin + i // group) * mixed.shape[1] + at + i % group * work.sums.shape[1]
        share = splat(_ONE / work.weights[i])
        for d in range(0, work.sums.shape[1], WIDTH):
            store(mixed, into + d, mul(load(work.sums, i * work.sums.shape[1] + d), share))


@compiled
def _use_block(work, block, group, keys, values):
    """`block` = (first position of the block, position of the tile's first row); `keys` and `values` =
    (where they are, from which element on)."""
    start, position = block
    count = work.queries.shape[0]
    first = max(0, start - position) * group
    for i in range(first, count - 1, 2):
        _score_two(work, i, keys)
    if (count - first) % 2:
        _score_one(work, count - 1, keys)
    for i in range(first, count):
        _soften(work, i, min(BLOCK, position + i // group - start + 1))
    for i in range(first, count):
        _mix(work, i, min(BLOCK, position + i // group - start + 1), values)


@compiled
def _work_for(count, head_dim):
    return _Work(
        np.empty((count, head_dim), np.float32),
        np.empty((count, head_dim), np.float32),
        np.empty((count, BLOCK), np.float32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
    )


@compiled
def attend(mixed, qkv, cache, rows):
    """`Kernels.attend` for one part."""
    keys, values = cache
    _, kv_heads, head_dim, _ = keys.shape
    group = mixed.shape[1] // head_dim // kv_heads
    positions, sequences, tables, tiles = rows
    wide_keys, wide_values = np.empty(head_dim * BLOCK, np.float32), np.empty(head_dim * BLOCK, np.float32)
    for tile in range(tiles.shape[0]):
        begin, end = tiles[tile]
        work = _work_for((end - begin) * group, head_dim)
        for head in range(kv_heads):
            _gather(work, qkv, begin, head * group * head_dim, group)
            work.sums[:], work.weights[:], work.largests[:] = ZERO, ZERO, _NOTHING
            for block in range(positions[end - 1] // BLOCK + 1):
                at = (tables[sequences[begin], block] * kv_heads + head) * head_dim * BLOCK
                where = block * BLOCK, positions[begin]
                if end - begin == 1:
                    _use_block(work, where, group, (keys, at), (values, at))
                else:
                    _widen(wide_keys, keys, at)
                    _widen(wide_values, values, at)
                    _use_block(work, where, group, (wide_keys, 0), (wide_values, 0))
            _finish(mixed, work, begin, head * group * head_dim, group)
