"""What happens to each row of a step by itself, on a CPU: norm, gate, and the choice of the best token."""

from __future__ import annotations

import math

import numpy as np

from .arithmetic import ZERO, add, div, exp2, fma, larger, largest, mul, splat, total
from .compiled import compiled
from .lanes import WIDTH, load, read, store

_ONE = np.float32(1.0)
_NOTHING = np.float32(-np.inf)
_MINUS_LOG2_E = np.float32(-math.log2(math.e))


@compiled
def _norm_row(out, x, row, by):
    weight, epsilon = by
    width = x.shape[1]
    at = row * width
    squares = splat(ZERO)
    for j in range(at, at + width, WIDTH):
        part = load(x, j)
        squares = fma(part, part, squares)
    mean = total(squares) / np.float32(width)
    factor = splat(_ONE / np.float32(math.sqrt(mean + np.float32(epsilon))))
    for j in range(0, width, WIDTH):
        store(out, at + j, mul(load(x, at + j), factor))
        store(out, at + j, mul(load(out, at + j), load(weight, j)))


@compiled
def norm(out, x, by):
    """`Kernels.norm`."""
    for row in range(x.shape[0]):
        _norm_row(out, x, row, by)


@compiled
def add_norm(out, x, delta, by):
    """`Kernels.add_norm`."""
    width = x.shape[1]
    for row in range(x.shape[0]):
        for j in range(row * width, (row + 1) * width, WIDTH):
            store(x, j, add(load(x, j), load(delta, j)))
        _norm_row(out, x, row, by)


@compiled
def gate(out, gate_up):
    """`Kernels.gate`."""
    width = out.shape[1]
    for row in range(out.shape[0]):
        into, at = row * width, row * 2 * width
        for j in range(0, width, WIDTH):
            x = load(gate_up, at + j)
            silu = div(x, add(splat(_ONE), exp2(mul(x, splat(_MINUS_LOG2_E)))))
            store(out, into + j, mul(silu, load(gate_up, at + width + j)))


@compiled
def best(logits, token_ids, finite):
    """Per row: into `token_ids` the lowest index of the largest, into `finite` whether all numbers are finite."""
    vocabulary = logits.shape[1]
    whole = vocabulary // WIDTH * WIDTH
    for row in range(logits.shape[0]):
        at = row * vocabulary
        tops, checks = splat(_NOTHING), splat(ZERO)
        for j in range(at, at + whole, WIDTH):
            part = load(logits, j)
            tops = larger(part, tops)
            checks = fma(part, splat(ZERO), checks)
        top, check = largest(tops), total(checks)
        for j in range(at + whole, at + vocabulary):
            top = max(top, read(logits, j))
            check += read(logits, j) * ZERO
        finite[row] = check == ZERO
        j = at
        while j < at + vocabulary - 1 and read(logits, j) != top:
            j += 1
        token_ids[row] = j - at
