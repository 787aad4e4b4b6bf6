"""The softmax of one split of positions, and how splits are put together: the order of attention's arithmetic.

A state is, per line, the largest score so far, the total weight, and the weighted sum of values, [lines],
[lines] and [lines, wide] float32. What a line does not see changes none of its three, in no bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def start(sizes: tl.constexpr):
    """Nothing seen."""
    top = tl.full((sizes.lines,), float("-inf"), tl.float32)
    return top, tl.zeros((sizes.lines,), tl.float32), tl.zeros((sizes.lines, sizes.wide), tl.float32)


@triton.jit
def _above(top):
    """What to take off scores before they become powers: the largest, or 0 where nothing is seen."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def joined(state, following):
    """The state after two ranges of positions, one after the other."""
    top = tl.maximum(state[0], following[0])
    above = _above(top)
    kept, added = tl.exp2(state[0] - above), tl.exp2(following[0] - above)
    total = state[1] * kept + following[1] * added
    return top, total, state[2] * kept[:, None] + following[2] * added[:, None]


@triton.jit
def one_split(queries, cache, lines, which, sizes: tl.constexpr):
    """The state after one split alone; `which` = (its number, the last position that any line sees)."""
    split, last = which
    position = lines[2]
    lowest = tl.min(tl.where(lines[3], position, last), 0)
    top, total, sums = start(sizes)
    for begin in range(split * sizes.split, tl.minimum((split + 1) * sizes.split, last + 1), sizes.chunk):
        keys, values = _read(cache, lines, (begin, last), sizes)
        seen = (begin + tl.arange(0, sizes.chunk))[None, :] <= position[:, None]
        scale: tl.constexpr = LOG2_E / sizes.head_dim**0.5
        scores = tl.where(seen, tl.dot(queries, keys, input_precision="ieee") * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        above = _above(higher)
        kept, shares = tl.exp2(top - above), tl.exp2(scores - above[:, None])
        total = total * kept + tl.sum(shares, 1)
        sums = sums * kept[:, None]
        if sizes.rows == 1:
            sums = tl.dot(shares.to(values.dtype), values, sums, input_precision="ieee")
        else:
            sums = _mixed(shares.to(values.dtype), values, sums, (seen, begin + sizes.chunk > lowest + 1))
        top = higher
    return top, total, sums


@triton.jit
def _read(cache, lines, which, sizes: tl.constexpr):
    """(keys [wide, chunk], values [chunk, wide]) of a chunk. No value beyond the last position is read; keys are up to
    the end of its block, since a mask within a block would have them read two bytes at a time: their scores are
    replaced."""
    begin, last = which
    t = begin + tl.arange(0, sizes.chunk)
    d = tl.arange(0, sizes.wide)
    begun = t // 16 <= last // 16
    # Sixteen positions share a block, which the compiler does not see.
    block = tl.load(lines[5] + t // 16, begun, 0).to(tl.int64)
    key_at = ((block * sizes.kv_heads + lines[4])[None, :] * sizes.head_dim + d[:, None]) * 16 + (t % 16)[None, :]
    key_at = tl.max_contiguous(tl.multiple_of(key_at, (1, 16)), (1, 16))
    value_at = ((block * sizes.kv_heads + lines[4]) * 16 + t % 16)[:, None] * sizes.head_dim + d[None, :]
    keys = tl.load(cache[0] + key_at, (d < sizes.head_dim)[:, None] & begun[None, :], 0.0)
    values = tl.load(cache[1] + value_at, (t <= last)[:, None] & (d < sizes.head_dim)[None, :], 0.0)
    return keys, values


@triton.jit
def _mixed(shares, values, sums, sight):
    """sums + shares · values. `sight` = (which line sees which position, whether some line does not see all): a line
    takes nothing from values that it does not see, not even zero times infinity."""
    seen, partial = sight
    if partial:
        finite = tl.abs(values.to(tl.float32)) < float("inf")
        clean = tl.where(finite, values, 0.0).to(values.dtype)
        broken = tl.dot(seen.to(values.dtype), tl.where(finite, 0.0, 1.0).to(values.dtype), input_precision="ieee")
        sums = tl.where(broken > 0.0, float("nan"), tl.dot(shares, clean, sums, input_precision="ieee"))
    else:
        sums = tl.dot(shares, values, sums, input_precision="ieee")
    return sums
