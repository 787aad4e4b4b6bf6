"""The base model's own product, and the memory that it shares with the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .kernels.port import Array, Kernels
from .packed import packed

_BLOCK_ROWS = 32


class Activation(NamedTuple):
    """One memory, seen twice: `tensor` [padded rows, width] by torch, `view` [n, width] by the kernels."""

    tensor: torch.Tensor
    view: Array


class Linear:
    """x [rows, in] -> [rows, out] of modules that share their input, one product for all of them. `pack`: in
    the library's own order of weights, if it has one. Where products are cut in blocks, the rows must be whole ones."""

    def __init__(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], pack: bool = False) -> None:
        weight = torch.cat(tuple(weights)) if len(weights) > 1 else weights[0]
        self._bias = torch.cat(tuple(biases)) if biases else None
        self._packed = packed(weight, self._bias) if pack else None
        self._weight = None if self._packed else weight.t()
        self._block = block_rows(weight.device)

    def into(self, out: torch.Tensor, x: torch.Tensor) -> None:
        if not self._block:
            self._product(out, x)
            return
        for block, rows in zip(out.split(self._block), x.split(self._block), strict=True):
            self._product(block, rows)

    def _product(self, out: torch.Tensor, x: torch.Tensor) -> None:
        if self._packed:
            out.copy_(self._packed(x))
        elif self._bias is None:
            torch.mm(x, self._weight, out=out)
        else:
            torch.addmm(self._bias, x, self._weight, out=out)


def block_rows(device: torch.device) -> int:
    """How many rows of a product are computed at once; 0: all. On processors with tiles (Intel's AMX) torch's libraries
    choose among kernels by the number of rows however many those are, and by the number of threads, with other last
    bits; a product of one size has one kernel."""
    return _BLOCK_ROWS if device.type == "cpu" and torch.cpu._is_amx_tile_supported() else 0


def row_classes(most_rows: int, dtype: torch.dtype, device: torch.device) -> tuple[int, ...]:
    """The row counts that products are run with, ascending; a step is padded to the next of them.

    A product takes as long as it has rows, so they are close together where steps are small: one row more must not
    cost sixteen. Few enough for all to be warmed up. And on CPUs products of very few rows (one in bfloat16, up
    to three in float32) take another code path, with other last bits: from here on a row is the same at every size,
    or in every block.
    """
    smallest = block_rows(device) or (4 if dtype == torch.bfloat16 else 8)
    sizes = [*range(smallest, 160, smallest), *range(160, most_rows + 64, 64)]
    return tuple(size for at, size in enumerate(sizes) if at == 0 or sizes[at - 1] < most_rows)


def activation(kernels: Kernels, memory: torch.Tensor, rows: int, padded_rows: int) -> Activation:
    return Activation(memory[:padded_rows], kernels.view(memory[:rows]))
