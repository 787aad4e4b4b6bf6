"""What the forward pass asks of a device, besides matrix products: the seam between model and kernels.

`cpu.py` keeps it with numba, `cuda/` with Triton; `choose.py` picks by device, and only the picked one is
imported. n: rows of a step; every array is C-contiguous; *number* is the engine's dtype.
Whatever `view` makes of a tensor is what the other methods take: both are one memory. Methods may return
before the device is done, as long as the next method or torch call sees the result.

Whoever implements this keeps three promises: a row's result depends, to the last bit, on that row's own
tokens and adapter only, never on what else is in the step or how it was cut; what belongs to others (their
slots, their blocks, places beyond the own position) is not even multiplied by zero; and the number of
calls to the device does not grow with the number of adapters or sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from services.replica_worker.engine.torch.stored import Stored

Array = Any
"""What `Kernels.view` returns."""


class Stacks(NamedTuple):
    """All slots. `weights` [slots, capacity] number: each adapter as it lies in host memory, back to back.
    `places` [slots, modules, 3] int64: where in it A and B of a module begin, and their padded rank; rank 0
    says that the module is not adapted. `scales` [slots, modules] float32. Modules count through the layers."""

    weights: Array
    places: Array
    scales: Array


class Packed(NamedTuple):
    """Modules that share one product: the one numbered `first` and its followers, of these many output
    `columns` [parts] int64 each."""

    first: int
    columns: Array


class Adapted(NamedTuple):
    """The rows that have an adapter, sorted by slot: `rows` [m] and `slots` [m] int64."""

    rows: Array
    slots: Array


class Rows(NamedTuple):
    """Where the rows of a step stand. `positions` [n] and `sequences` [n] int64; `tables` [sequences, any]
    int64: the ids of a sequence's blocks, in order; `tiles` [t, 2] int64: [begin, end) of neighbouring rows
    of one sequence at rising positions, which may share what they read; every row is in one tile."""

    positions: Array
    sequences: Array
    tables: Array
    tiles: Array


class LayerCache(NamedTuple):
    """One layer's blocks: `keys` [blocks, kv_heads, head_dim, 16], `values` [blocks, kv_heads, 16, head_dim]."""

    keys: Array
    values: Array


class Rope(NamedTuple):
    """`cos` and `sin` [context, head_dim / 2] float32."""

    cos: Array
    sin: Array


class Norm(NamedTuple):
    """`weight` [hidden] number, `epsilon`: float."""

    weight: Array
    epsilon: float


class Side(NamedTuple):
    """A or, `turned`, B of one module, on its way from the file to element `at` of an adapter's memory, where it has
    `rank` ranks, a multiple of RANK_MULTIPLE."""

    stored: Stored
    at: int
    rank: int
    turned: bool


class Kernels(Protocol):
    """`parts` arguments are what `split_*` made of the whole: each is one thread's or stream's share."""

    def view(self, tensor: torch.Tensor) -> Array: ...
    def index(self, values: Any) -> Array:
        """An int64 array as the other methods take it, from a numpy one or nested lists."""

    def pack(self, into: torch.Tensor, body: np.ndarray, sides: Sequence[Side]) -> int | None:
        """Fill `into`, the flat host memory of one adapter, with all of its sides in the order in which `adapt` reads
        them, ranks padded with zeros, as numbers rounded to nearest even. `body` is the file's. Returns the first side
        with a number that is not finite then, None for none. Runs beside steps, on another thread."""

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Fill `into` on the device from host memory of the same shape; blocks until it is there. Runs beside
        steps, on another thread."""

    def split_adapted(self, adapted: Adapted) -> Sequence[Adapted]: ...
    def split_rows(self, rows: Rows) -> Sequence[Rows]: ...

    def foresee(self, y: Array, x: Array, stacks: Stacks, packed: Packed, parts: Sequence[Adapted]) -> None:
        """`adapt` with these arguments comes next, after the product of x that makes y: what it needs of x alone may
        begin here, beside that product."""

    def adapt(self, y: Array, x: Array, stacks: Stacks, packed: Packed, parts: Sequence[Adapted]) -> None:
        """y [n, Σ columns] += scale · B (A x) of each adapted row's own slot, x [n, in]; sums in float32. The next of
        `place`, `add_norm` and `gate` takes y, and nothing reads it before."""

    def place(self, qkv: Array, rows: Rows, rope: Rope, cache: LayerCache) -> None:
        """Rotate the queries and keys of qkv [n, (heads + 2 kv_heads) · head_dim]; queries stay there, keys
        and values go to their positions in the cache."""

    def attend(self, mixed: Array, qkv: Array, cache: LayerCache, parts: Sequence[Rows]) -> None:
        """mixed [n, heads · head_dim] = attention of each row over positions 0 … its own."""

    def norm(self, out: Array, x: Array, norm: Norm) -> None:
        """out = RMSNorm of x [n, hidden], the weight applied after rounding."""

    def add_norm(self, out: Array, x: Array, delta: Array, norm: Norm) -> None:
        """x += delta; out = RMSNorm of x."""

    def gate(self, out: Array, gate_up: Array) -> None:
        """out [n, i] = silu(gate) * up of gate_up [n, 2 i]."""

    def best(self, logits: Array) -> tuple[list[int], list[bool]]:
        """Per row of logits [m, vocabulary]: the lowest index of the largest, and whether all are finite."""


RANK_MULTIPLE = 4
"""Adapters are stored with their rank padded to a multiple of this."""

MOST_RANKS = 512
"""No slot may be made for more."""

TILE_ROWS = 8
"""Most rows of a tile."""
