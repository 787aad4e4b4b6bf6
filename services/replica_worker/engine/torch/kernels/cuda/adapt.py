"""The adapted layer in Triton: for each tile of rows of one slot first A x, then B of that; two launches a projection.

A tile is sixteen lines whether one row or sixteen are in it, and every sum is cut and ordered by the widths alone, so
a row's numbers are the same in any company. Lines without a row and ranks that the slot does not have are not read.
The work is bound by reading A and B once: tensor cores compute a tile of sixteen in the time of one row.

A and B lie as in their files: A [r, in], so that a program reads as many runs of a whole `chunk` as there are ranks,
and B [r, out], in runs of `block` columns; 256 bytes and more each, in loads of 16 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from services.replica_worker.engine.torch.kernels.port import MOST_RANKS, Packed, Stacks

from .rowwise import FIXED

LINES = 16
"""Of a tile: the least that tensor cores compute at once."""
_RANKS = 16
"""Ranks at a time, for the same reason; more are taken in turn."""
_STEP = 128
"""Inputs at a time: 256 bytes of each rank in bfloat16."""
_SHARES = 8
"""Into how many programs the sum over a row's inputs is cut, at most: at 7B shapes 4096 inputs of 16 ranks make 16 KB
a program, and 32 tiles of one module 256 programs, two for each multiprocessor of an H200."""
_COLUMNS = 256
"""Outputs of one program: 8 KB of B at rank 16; a 12288-wide product of one tile makes 48 programs."""


class Tiles(NamedTuple):
    """`rows` [m]: the adapted rows of a step, sorted by slot. `tiles` [t, 3]: [begin, end) into them, at most LINES,
    and their slot; empty tiles are nobody's. `adapted` [n]: of every row of the step, whether it is among them. On
    the device all int32."""

    rows: Any
    tiles: Any
    adapted: Any = None


class _Sizes(NamedTuple):
    """Of packed projections of one shape. `inner`: inputs; `chunk`: inputs of one share; `columns` of up to three
    parts, 0 for one that is not there."""

    parts: int
    inner: int
    chunk: int
    shares: int
    columns: tuple[int, int, int]
    modules: int
    lines: int
    ranks: int
    most_ranks: int
    step: int
    block: int


class _Lows(NamedTuple):
    """`low` [n, parts, shares, most_ranks] float32: the shares of A x. `first`: the number of the first module."""

    low: Any
    first: int


@triton.jit
def _tile(tiles, sizes: tl.constexpr):
    """(row of each line, which lines have one, the slot) of this program's tile."""
    at = tl.program_id(0) * 3
    begin, end, slot = tl.load(tiles.tiles + at), tl.load(tiles.tiles + at + 1), tl.load(tiles.tiles + at + 2)
    line = begin + tl.arange(0, sizes.lines)
    rows = tl.load(tiles.rows + line, line < end, 0).to(tl.int64)
    return rows, line < end, slot.to(tl.int64)


@triton.jit
def _shrink(lows, x, stacks, tiles, sizes: tl.constexpr):
    """One share of A x of one tile and part."""
    rows, real, slot = _tile(tiles, sizes)
    part, share = tl.program_id(1), tl.program_id(2)
    module = slot * sizes.modules + lows.first + part
    rank = tl.load(stacks.places + module * 3 + 2).to(tl.int32)
    if tl.sum(real.to(tl.int32), 0) > 0:
        # Where A begins is a multiple of sixteen numbers, since every width is: loads may be 16 bytes long.
        a = tl.multiple_of(stacks.weights.base + slot * stacks.weights.stride + tl.load(stacks.places + module * 3), 16)
        into = lows.low + ((rows * sizes.parts + part) * sizes.shares + share) * sizes.most_ranks
        for begin in range(0, rank, sizes.ranks):
            ranks = begin + tl.arange(0, sizes.ranks)
            sums = _products(x, a, (rows, real, ranks, rank), share * sizes.chunk, sizes)
            tl.store(into[:, None] + ranks[None, :], sums, real[:, None] & (ranks < rank)[None, :])


@triton.jit
def _products(x, a, lines, begin, sizes: tl.constexpr):
    """[lines, ranks]: x times A over one chunk of the inputs, from `begin` on."""
    rows, real, ranks, rank = lines
    sums = tl.zeros((sizes.lines, sizes.ranks), tl.float32)
    for step in range(0, sizes.chunk, sizes.step):
        inner = begin + step + tl.arange(0, sizes.step)
        inside = inner < sizes.inner
        mine = tl.load(x + rows[:, None] * sizes.inner + inner[None, :], real[:, None] & inside[None, :], 0.0)
        at = a + ranks[None, :] * sizes.inner + inner[:, None]
        theirs = tl.load(at, (ranks < rank)[None, :] & inside[:, None], 0.0)
        sums = tl.dot(mine, theirs, sums, input_precision="ieee")
    return sums


@triton.jit
def _part(at, sizes: tl.constexpr):
    """(part, first of its columns, how many, in the whole product) of the `at`-th block of columns."""
    ends: tl.constexpr = triton.cdiv(sizes.columns[0], sizes.block)
    more: tl.constexpr = ends + triton.cdiv(sizes.columns[1], sizes.block)
    part = (at >= ends).to(tl.int32) + (at >= more).to(tl.int32)
    before = tl.where(part == 0, 0, tl.where(part == 1, ends, more))
    offset = tl.where(part == 0, 0, tl.where(part == 1, sizes.columns[0], sizes.columns[0] + sizes.columns[1]))
    count = tl.where(part == 0, sizes.columns[0], tl.where(part == 1, sizes.columns[1], sizes.columns[2]))
    return part, (at - before) * sizes.block, count, offset


@triton.jit
def _expand(extra, lows, stacks, tiles, sizes: tl.constexpr):
    """One block of columns of one tile: extra = scale · B (A x), zero where the module is not adapted."""
    rows, real, slot = _tile(tiles, sizes)
    part, first, count, offset = _part(tl.program_id(1), sizes)
    module = slot * sizes.modules + lows.first + part
    rank = tl.load(stacks.places + module * 3 + 2).to(tl.int32)
    if tl.sum(real.to(tl.int32), 0) > 0:
        scale = tl.load(stacks.scales + module)
        b = stacks.weights.base + slot * stacks.weights.stride + tl.load(stacks.places + module * 3 + 1)
        column = first + tl.arange(0, sizes.block)
        sums = tl.zeros((sizes.lines, sizes.block), tl.float32)
        for begin in range(0, rank, sizes.ranks):
            ranks = begin + tl.arange(0, sizes.ranks)
            low = _low(lows, (rows, real, part), (ranks, rank), sizes) * scale
            at = tl.multiple_of(b, 16) + ranks[:, None] * count + column[None, :]
            theirs = tl.load(at, (ranks < rank)[:, None] & (column < count)[None, :], 0.0)
            sums = _times(low, theirs, sums)
        width: tl.constexpr = sizes.columns[0] + sizes.columns[1] + sizes.columns[2]
        into = extra + rows[:, None] * width + (offset + column)[None, :]
        tl.store(into, sums.to(extra.dtype.element_ty), real[:, None] & (column < count)[None, :])


@triton.jit
def _low(lows, lines, which, sizes: tl.constexpr):
    """[lines, ranks]: the shares of A x, summed."""
    rows, real, part = lines
    ranks, rank = which
    share = tl.arange(0, triton.next_power_of_2(sizes.shares))[:, None, None]
    at = ((rows * sizes.parts + part) * sizes.shares)[None, :, None] + share
    kept = (share < sizes.shares) & real[None, :, None] & (ranks < rank)[None, None, :]
    return tl.sum(tl.load(lows.low + at * sizes.most_ranks + ranks[None, None, :], kept, 0.0), 0)


@triton.jit
def _times(low, b, sums):
    """sums + low · B. Tensor cores take bfloat16: `low` goes in as two of it, with 16 of its 24 bits."""
    if b.dtype == tl.float32:
        return tl.dot(low, b, sums, input_precision="ieee")
    high = low.to(b.dtype)
    rest = (low - high.to(tl.float32)).to(b.dtype)
    return tl.dot(high, b, tl.dot(rest, b, sums))


class Weights(NamedTuple):
    """`Stacks.weights` as an address and the numbers from one slot to the next."""

    base: Any
    stride: int


def adapt(extra: Any, x: Any, stacks: Stacks, packed: Packed, tiles: Tiles) -> None:
    """extra [n, Σ columns] = what the adapters of the rows in `tiles` add to the product of x [n, in]; other rows of
    `extra` are not written. Two launches, whatever the rows."""
    count, sizes = len(tiles.tiles), _sizes(x, stacks, packed)
    low = torch.empty((len(x), sizes.parts, sizes.shares, sizes.most_ranks), dtype=torch.float32, device=x.device)
    lows, read = _Lows(low, packed.first), stacks._replace(weights=Weights(stacks.weights, stacks.weights.shape[1]))
    _shrink[(count, sizes.parts, sizes.shares)](lows, x, read, tiles, sizes, num_warps=4, num_stages=4, **FIXED)
    blocks = sum(triton.cdiv(columns, sizes.block) for columns in sizes.columns)
    _expand[(count, blocks)](extra, lows, read, tiles, sizes, num_warps=4, num_stages=2, **FIXED)


def _sizes(x: Any, stacks: Stacks, packed: Packed) -> _Sizes:
    inner = x.shape[1]
    chunk = triton.cdiv(triton.cdiv(inner, _SHARES), _STEP) * _STEP
    q, k, v = (*packed.columns.tolist(), 0, 0)[:3]
    return _Sizes(
        parts=len(packed.columns),
        inner=inner,
        chunk=chunk,
        shares=triton.cdiv(inner, chunk),
        columns=(q, k, v),
        modules=stacks.places.shape[1],
        lines=LINES,
        ranks=_RANKS,
        most_ranks=MOST_RANKS,
        step=_STEP,
        block=_COLUMNS,
    )
