"""What happens to each row of a step by itself, in Triton: norm, gate, rotation into the cache, the best token.

Every kernel reads the share of the adapters, if one is owed, together with the product that it belongs to: see
`share.py`. No row count is an argument, so that no step makes Triton compile anew; floating-point contraction
is off (`FIXED`), so that the source alone decides every last bit. In kernels a cache is `cache[0]` and `cache[1]`:
Triton's own tuples have another meaning for `values`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from services.replica_worker.engine.torch.kernels.port import LayerCache, Norm, Rope, Rows

from .share import Share, with_share

FIXED = {"enable_fp_fusion": False}
LOG2_E = tl.constexpr(1.4426950408889634)

_GATE_COLUMNS = 1024
_BEST_COLUMNS = 4096
_PLACED_HEADS = 4
"""Heads of one row that one program rotates: one warp has 16 bytes a thread to read of every half head of 128."""


class _Heads(NamedTuple):
    """Sizes of a row of queries, keys and values. `turned` heads are rotated, `keys` begin at the head of this number,
    `wide` is half a head rounded up to a power of two; a context has so many `blocks`."""

    count: int
    keys: int
    turned: int
    half: int
    wide: int
    together: int
    blocks: int


@triton.jit
def _normed(out, row, x, by, width: tl.constexpr):
    """out[row] = RMSNorm of x, which is one row in float32."""
    at = tl.arange(0, triton.next_power_of_2(width))
    kept = at < width
    factor = 1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / width + by.epsilon)
    scaled = (x * factor).to(out.dtype.element_ty).to(tl.float32)
    weight = tl.load(by.weight + at, kept, 0.0).to(tl.float32)
    tl.store(out + row * width + at, (scaled * weight).to(out.dtype.element_ty), kept)


@triton.jit
def _norm(out, x, by, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, triton.next_power_of_2(width))
    _normed(out, row, tl.load(x + row * width + at, at < width, 0.0).to(tl.float32), by, width)


@triton.jit
def _add_norm(out, x, owing, by, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, triton.next_power_of_2(width))
    kept = at < width
    delta = with_share(owing, row, row * width + at, kept)
    summed = (tl.load(x + row * width + at, kept, 0.0).to(tl.float32) + delta).to(x.dtype.element_ty)
    tl.store(x + row * width + at, summed, kept)
    _normed(out, row, summed.to(tl.float32), by, width)


@triton.jit
def _gate(out, owing, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    kept = at < width
    gate = with_share(owing, row, row * 2 * width + at, kept)
    up = with_share(owing, row, row * 2 * width + width + at, kept)
    silu = gate / (1.0 + tl.exp2(gate * -LOG2_E))
    tl.store(out + row * width + at, (silu * up).to(out.dtype.element_ty), kept)


@triton.jit
def _place(owing, rows, rope, cache, heads: tl.constexpr):
    """Rotate and place `heads.together` heads of one row; a row at a negative position is nobody's."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(rows.positions + row)
    if position >= 0:
        head = tl.program_id(1) * heads.together + tl.arange(0, heads.together)[:, None]
        plane = tl.arange(0, heads.wide)[None, :]
        kept = (head < heads.count) & (plane < heads.half)
        at = (row * heads.count + head) * (2 * heads.half) + plane
        low = with_share(owing, row, at, kept)
        high = with_share(owing, row, at + heads.half, kept)
        angle = position.to(tl.int64) * heads.half + plane
        cos = tl.load(rope.cos + angle, plane < heads.half, 0.0)
        sin = tl.load(rope.sin + angle, plane < heads.half, 0.0)
        turned = head < heads.turned
        first = tl.where(turned, low * cos - high * sin, low).to(owing.y.dtype.element_ty)
        second = tl.where(turned, high * cos + low * sin, high).to(owing.y.dtype.element_ty)
        queries = kept & (head < heads.keys)
        tl.store(owing.y + at, first, queries)
        tl.store(owing.y + at + heads.half, second, queries)
        _keep(rows, cache, (row, position), (first, second), heads)


@triton.jit
def _keep(rows, cache, which, halves, heads: tl.constexpr):
    """Put the keys and values among the heads of this program to their position in the cache."""
    row, position = which
    head = tl.program_id(1) * heads.together + tl.arange(0, heads.together)[:, None]
    plane = tl.arange(0, heads.wide)[None, :]
    sequence = tl.load(rows.sequences + row).to(tl.int64)
    block = tl.load(rows.tables + sequence * heads.blocks + position // 16).to(tl.int64)
    within = position % 16
    kv_heads: tl.constexpr = heads.turned - heads.keys
    size: tl.constexpr = 2 * heads.half
    is_key = (head >= heads.keys) & (head < heads.turned) & (plane < heads.half)
    key = ((block * kv_heads + head - heads.keys) * size + plane) * 16 + within
    tl.store(cache[0] + key, halves[0], is_key)
    tl.store(cache[0] + key + heads.half * 16, halves[1], is_key)
    is_value = (head >= heads.turned) & (head < heads.count) & (plane < heads.half)
    value = ((block * kv_heads + head - heads.turned) * 16 + within) * size + plane
    tl.store(cache[1] + value, halves[0], is_value)
    tl.store(cache[1] + value + heads.half, halves[1], is_value)


@triton.jit
def _best(found, logits, width: tl.constexpr, block: tl.constexpr):
    """found[row] = (lowest index of the largest, how many numbers are not finite)."""
    row = tl.program_id(0).to(tl.int64)
    top, token_id, broken = float("-inf"), 0, 0
    for begin in range(0, width, block):
        at = begin + tl.arange(0, block)
        part = tl.load(logits + row * width + at, at < width, float("-inf")).to(tl.float32)
        largest = tl.max(part, 0)
        first = tl.min(tl.where((part == largest) & (at < width), at, width), 0)
        token_id = tl.where(largest > top, first, token_id)
        top = tl.maximum(largest, top)
        broken += tl.sum(((at < width) & ((part != part) | (tl.abs(part) == float("inf")))).to(tl.int32), 0)
    tl.store(found + row * 2, tl.minimum(token_id, width - 1))
    tl.store(found + row * 2 + 1, broken)


def norm(out: Any, x: Any, by: Norm) -> None:
    rows, width = x.shape
    _norm[(rows,)](out, x, by, width, num_warps=_warps(width), **FIXED)


def add_norm(out: Any, x: Any, owing: Share, by: Norm) -> None:
    rows, width = x.shape
    _add_norm[(rows,)](out, x, owing, by, width, num_warps=_warps(width), **FIXED)


def gate(out: Any, owing: Share) -> None:
    rows, width = out.shape
    _gate[(rows, triton.cdiv(width, _GATE_COLUMNS))](out, owing, width, _GATE_COLUMNS, num_warps=4, **FIXED)


def place(owing: Share, rows: Rows, rope: Rope, cache: LayerCache) -> None:
    _, kv_heads, head_dim, _ = cache.keys.shape
    count = owing.y.shape[1] // head_dim
    half = head_dim // 2
    heads = _Heads(
        count=count,
        keys=count - 2 * kv_heads,
        turned=count - kv_heads,
        half=half,
        wide=triton.next_power_of_2(half),
        together=_PLACED_HEADS,
        blocks=rows.tables.shape[1],
    )
    grid = (len(owing.y), triton.cdiv(count, _PLACED_HEADS))
    _place[grid](owing, rows, rope, cache, heads, num_warps=1, **FIXED)


def best(found: Any, logits: Any) -> None:
    rows, width = logits.shape
    _best[(rows,)](found, logits, width, _BEST_COLUMNS, num_warps=8, **FIXED)


def _warps(width: int) -> int:
    """Sixteen numbers a thread, two loads of 16 bytes in bfloat16."""
    return max(1, min(16, triton.next_power_of_2(width) // 512))
