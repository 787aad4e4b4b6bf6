"""The adapted layer on a CPU: y[i] += scale · B (A x[i]) with A and B of row i's own slot.

Up to four rows of one slot are computed together, so that its weights are read and widened once for all of
them; each row's own arithmetic is the same in company and alone. The weights are read front to back, once for
every four rows (see `pack.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arithmetic import total
from .compiled import compiled
from .each import add_each, begins_of, fma_each, load_each, spread_each, store_each, zero_each
from .lanes import WIDTH, load, store
from .port import MOST_RANKS

RANKS = 4
"""Ranks are computed four at a time: `port.RANK_MULTIPLE` must be a multiple of it."""


_TOGETHER = 4
"""Rows whose sums, four ranks each, fit the registers beside what they are made of."""


class _Side(NamedTuple):
    """A or B of one module in one slot: `rank` ranks from weights[at] on."""

    weights: Any
    at: Any
    rank: Any


class _Work(NamedTuple):
    """Of rows that are computed together, all float32: their inputs, and what A makes of them."""

    wide: Any
    low: Any


@compiled
def _shrink(work, places, side, scale):
    """low[i, :rank] = scale · A wide[i] for every i of `places`."""
    wide, low = work
    weights, at, rank = side
    begins = begins_of(places, wide.shape[1])
    for r in range(0, rank, RANKS):
        s0, s1, s2, s3 = zero_each(places), zero_each(places), zero_each(places), zero_each(places)
        for j in range(0, wide.shape[1], WIDTH):
            x = load_each(wide, begins, j)
            s0 = fma_each(x, load(weights, at), s0)
            s1 = fma_each(x, load(weights, at + WIDTH), s1)
            s2 = fma_each(x, load(weights, at + 2 * WIDTH), s2)
            s3 = fma_each(x, load(weights, at + 3 * WIDTH), s3)
            at += RANKS * WIDTH
        for i in range(len(places)):
            low[i, r], low[i, r + 1] = total(s0[i]) * scale, total(s1[i]) * scale
            low[i, r + 2], low[i, r + 3] = total(s2[i]) * scale, total(s3[i]) * scale


@compiled
def _expand(y, span, work, places, side):
    """y[begin + first …] += B low[i] for every i of `places`, `columns` numbers; `span` = (begins in y, first,
    columns)."""
    weights, at, rank = side
    y_begins, first, columns = span
    begins = begins_of(places, MOST_RANKS)
    for c in range(first, first + columns, WIDTH):
        s0, s1, s2, s3 = zero_each(places), zero_each(places), zero_each(places), zero_each(places)
        for r in range(0, rank, RANKS):
            s0 = fma_each(spread_each(work.low, begins, r), load(weights, at), s0)
            s1 = fma_each(spread_each(work.low, begins, r + 1), load(weights, at + WIDTH), s1)
            s2 = fma_each(spread_each(work.low, begins, r + 2), load(weights, at + 2 * WIDTH), s2)
            s3 = fma_each(spread_each(work.low, begins, r + 3), load(weights, at + 3 * WIDTH), s3)
            at += RANKS * WIDTH
        share = add_each(add_each(s0, s1), add_each(s2, s3))
        store_each(y, y_begins, c, add_each(load_each(y, y_begins, c), share))


@compiled
def _widen(into, x, rows):
    width = x.shape[1]
    for i in range(len(rows)):
        for j in range(0, width, WIDTH):
            store(into, i * width + j, load(x, rows[i] * width + j))


@compiled
def _adapt_rows(y, x, adapters, rows, places):
    """Of one slot; `adapters` = (weights, its own places in them, its scales, columns of the modules, work)."""
    weights, sides, scales, columns, work = adapters
    _widen(work.wide, x, rows)
    y_begins, y_at = begins_of(rows, y.shape[1]), 0
    for part in range(columns.shape[0]):
        a_at, b_at, rank = sides[part]
        if rank:
            _shrink(work, places, _Side(weights, a_at, rank), scales[part])
            _expand(y, (y_begins, y_at, columns[part]), work, places, _Side(weights, b_at, rank))
        y_at += columns[part]


@compiled
def adapt(y, x, stacks, packed, adapted):
    """`Kernels.adapt` for one part."""
    first, columns = packed
    rows, slots = adapted
    after = first + columns.shape[0]
    work = _Work(np.empty((_TOGETHER, x.shape[1]), np.float32), np.empty((_TOGETHER, MOST_RANKS), np.float32))
    i = 0
    while i < rows.shape[0]:
        slot, count = slots[i], 1
        while count < _TOGETHER and i + count < rows.shape[0] and slots[i + count] == slot:
            count += 1
        own = stacks.weights[slot], stacks.places[slot, first:after], stacks.scales[slot, first:after], columns, work
        if count == _TOGETHER:
            _adapt_rows(y, x, own, (rows[i], rows[i + 1], rows[i + 2], rows[i + 3]), (0, 1, 2, 3))
        elif count > 1:
            count = 2
            _adapt_rows(y, x, own, (rows[i], rows[i + 1]), (0, 1))
        else:
            _adapt_rows(y, x, own, (rows[i],), (0,))
        i += count
