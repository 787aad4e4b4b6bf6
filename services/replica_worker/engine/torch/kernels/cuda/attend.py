"""Attention over the block cache in Triton: online softmax from position 0 to the row's own, split after position.

A split is so many positions, wherever a row stands: each is computed for itself, chunk by chunk, and the splits are put
together from the first to the last. A step in which every sequence has one row does that in two launches, with a
program per split, so that few rows keep the whole device busy; any other step in one, with a program per tile of
neighbouring rows. What a row computes is the same in both. The heads that share keys are lines of one tile, and a tile
has sixteen lines, real ones or not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from services.replica_worker.engine.torch.kernels.port import LayerCache, Rows

from .rowwise import FIXED
from .softmax import joined, one_split, start

TILE_ROWS = 16
"""Neighbouring rows of one sequence that share what they read."""
_LINES = 16
"""Of one program: the least that tensor cores compute at once, and so always the same instruction."""
_SPLIT = 256
"""Positions: 128 KB of a head of 128; 32 rows of 1k context make some 4,000 programs, one such row 128."""
_CHUNK = 64
"""Positions that are read together: 32 KB. Two stages in three programs a multiprocessor are far more than the 30 KB
that must be under way to hide the memory's latency."""
_MOST_ALONE = 128
"""Rows whose splits are kept; beyond, there are programs enough without."""
_MOST_PROGRAMS = 16
"""Of one row and key head; the splits of a longer context are taken in turns."""


class Sizes(NamedTuple):
    """`group`: heads to a key head; `wide`: head_dim rounded up to a power of two; `rows` of a tile, which `subs`
    programs of `lines` lines share; `blocks` and `most`: blocks and splits of a whole context, the latter taken by
    `programs`."""

    heads: int
    kv_heads: int
    group: int
    head_dim: int
    wide: int
    lines: int
    rows: int
    subs: int
    split: int
    chunk: int
    blocks: int
    most: int
    programs: int


class _Splits(NamedTuple):
    """Of every row, head and split: `sums` [n, heads, most, head_dim], and [n, heads, most] the largest score, `tops`,
    and the weights' `totals`; all float32."""

    sums: Any
    tops: Any
    totals: Any


@triton.jit
def _lines(rows, sizes: tl.constexpr):
    """Of this program's lines, [lines] each: row, head, position, and which are real, the others being at -1 and seeing
    nothing; then the key head of all, and where their sequence's blocks are named."""
    tile, key_head, sub = tl.program_id(0), tl.program_id(1) // sizes.subs, tl.program_id(1) % sizes.subs
    begin, end = tl.load(rows.tiles + tile * 2), tl.load(rows.tiles + tile * 2 + 1)
    line = sub * sizes.lines + tl.arange(0, sizes.lines)
    row = begin + line // sizes.group
    position = tl.load(rows.positions + row, row < end, -1)
    sequence = tl.load(rows.sequences + begin).to(tl.int64)
    table = rows.tables + sequence * sizes.blocks
    head = key_head * sizes.group + line % sizes.group
    return row.to(tl.int64), head, position, position >= 0, key_head, table


@triton.jit
def _queries(qkv, lines, sizes: tl.constexpr):
    d = tl.arange(0, sizes.wide)[None, :]
    at = lines[0] * (sizes.heads + 2 * sizes.kv_heads) + lines[1]
    return tl.load(qkv + at[:, None] * sizes.head_dim + d, lines[3][:, None] & (d < sizes.head_dim), 0.0)


@triton.jit
def _attend_tiles(mixed, qkv, rows, cache, sizes: tl.constexpr):
    lines = _lines(rows, sizes)
    queries, last = _queries(qkv, lines, sizes), tl.max(lines[2], 0)
    top, total, sums = start(sizes)
    for split in range((last + sizes.split) // sizes.split):
        top, total, sums = joined((top, total, sums), one_split(queries, cache, lines, (split, last), sizes))
    d = tl.arange(0, sizes.wide)[None, :]
    at = (lines[0] * sizes.heads + lines[1])[:, None] * sizes.head_dim + d
    out = (sums / total[:, None]).to(mixed.dtype.element_ty)
    tl.store(mixed + at, out, lines[3][:, None] & (d < sizes.head_dim))


@triton.jit
def _attend_splits(splits, qkv, rows, cache, sizes: tl.constexpr):
    lines = _lines(rows, sizes)
    queries, last = _queries(qkv, lines, sizes), tl.max(lines[2], 0)
    d = tl.arange(0, sizes.wide)[None, :]
    for split in range(tl.program_id(2), (last + sizes.split) // sizes.split, sizes.programs):
        top, total, sums = one_split(queries, cache, lines, (split, last), sizes)
        at = (lines[0] * sizes.heads + lines[1]) * sizes.most + split
        tl.store(splits.tops + at, top, lines[3])
        tl.store(splits.totals + at, total, lines[3])
        kept = lines[3][:, None] & (d < sizes.head_dim)
        tl.store(splits.sums + at[:, None] * sizes.head_dim + d, sums, kept)


@triton.jit
def _join(mixed, splits, rows, sizes: tl.constexpr):
    """One row and head: its splits, from the first to the last."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(rows.positions + row)
    if position >= 0:
        d = tl.arange(0, sizes.wide)[None, :]
        kept = d < sizes.head_dim
        first = (row * sizes.heads + head) * sizes.most
        top = tl.full((1,), float("-inf"), tl.float32)
        total = tl.zeros((1,), tl.float32)
        sums = tl.zeros((1, sizes.wide), tl.float32)
        for split in range(position // sizes.split + 1):
            at = first + split + tl.zeros((1,), tl.int64)
            theirs = tl.load(splits.sums + at[:, None] * sizes.head_dim + d, kept, 0.0)
            one = (tl.load(splits.tops + at), tl.load(splits.totals + at), theirs)
            top, total, sums = joined((top, total, sums), one)
        out = (sums / total[:, None]).to(mixed.dtype.element_ty)
        tl.store(mixed + (row * sizes.heads + head) * sizes.head_dim + d, out, kept)


def attend(mixed: Any, qkv: Any, cache: LayerCache, rows: Rows) -> None:
    """See `Kernels.attend`. `rows.tiles` of one row each for all rows, or of up to TILE_ROWS."""
    alone = len(rows.tiles) == len(rows.positions) <= _MOST_ALONE
    sizes = _sizes(mixed, cache, rows, 1 if alone else TILE_ROWS)
    grid = (len(rows.tiles), sizes.kv_heads * sizes.subs)
    if not alone:
        _attend_tiles[grid](mixed, qkv, rows, cache, sizes, num_warps=4, num_stages=2, **FIXED)
        return
    shape = (len(mixed), sizes.heads, sizes.most)
    splits = _Splits(
        torch.empty((*shape, sizes.head_dim), dtype=torch.float32, device=mixed.device),
        torch.empty(shape, dtype=torch.float32, device=mixed.device),
        torch.empty(shape, dtype=torch.float32, device=mixed.device),
    )
    _attend_splits[(*grid, sizes.programs)](splits, qkv, rows, cache, sizes, num_warps=4, num_stages=2, **FIXED)
    _join[(len(mixed), sizes.heads)](mixed, splits, rows, sizes, num_warps=1, num_stages=4, **FIXED)


def _sizes(mixed: Any, cache: LayerCache, rows: Rows, tile_rows: int) -> Sizes:
    _, kv_heads, head_dim, tokens = cache.keys.shape
    heads = mixed.shape[1] // head_dim
    blocks = rows.tables.shape[1]
    most = triton.cdiv(blocks * tokens, _SPLIT)
    return Sizes(
        heads=heads,
        kv_heads=kv_heads,
        group=heads // kv_heads,
        head_dim=head_dim,
        wide=triton.next_power_of_2(head_dim),
        lines=_LINES,
        rows=tile_rows,
        subs=triton.cdiv(tile_rows * heads // kv_heads, _LINES),
        split=_SPLIT,
        chunk=_CHUNK,
        blocks=blocks,
        most=most,
        programs=min(most, _MOST_PROGRAMS),
    )
