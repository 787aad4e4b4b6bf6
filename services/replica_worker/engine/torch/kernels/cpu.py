"""`port.Kernels` on a CPU: tensors are seen as numpy arrays, without a copy, by kernels that numba compiles."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .adapt import adapt
from .attend import attend
from .crew import Crew
from .pack import BFLOAT16, FLOAT16, FLOAT32, HALVES, pack
from .port import Adapted, LayerCache, Norm, Packed, Rope, Rows, Side, Stacks
from .rotary import place
from .rowwise import add_norm, best, gate, norm

_WORTH_ROWS = 8
_WORTH_TOKENS = 4096
"""Below these a part is done sooner than another thread is woken."""

_KINDS = {"F32": FLOAT32, "F16": FLOAT16, "BF16": BFLOAT16}


class CpuKernels:
    """float32 and bfloat16. Every width of the model must be a multiple of 16, head_dim of 32."""

    def __init__(self, threads: int) -> None:
        self._crew = Crew(threads)

    def view(self, tensor: torch.Tensor) -> np.ndarray:
        narrow = tensor.dtype == torch.bfloat16
        array: np.ndarray = (tensor.view(torch.uint16) if narrow else tensor).numpy()
        return array

    def index(self, values: Any) -> np.ndarray:
        return np.ascontiguousarray(values, dtype=np.int64)

    def pack(self, into: torch.Tensor, body: np.ndarray, sides: Sequence[Side]) -> int | None:
        table = [_side(side) for side in sides]
        first = pack(self.view(into), body.view(np.uint16), self.index(table), HALVES)
        return first if first < len(sides) else None

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """One memcpy on the caller's thread: torch would take the cores that the steps run on."""
        np.copyto(self.view(into), self.view(source))

    def split_adapted(self, adapted: Adapted) -> list[Adapted]:
        count = len(adapted.rows)
        parts = max(1, min(self._crew.threads, count // _WORTH_ROWS))
        cuts = [count * part // parts for part in range(parts + 1)]
        return [Adapted(adapted.rows[a:b], adapted.slots[a:b]) for a, b in itertools.pairwise(cuts)]

    def split_rows(self, rows: Rows) -> list[Rows]:
        parts = max(1, min(self._crew.threads, int(rows.positions.sum()) // _WORTH_TOKENS, len(rows.tiles)))
        return [rows._replace(tiles=np.ascontiguousarray(rows.tiles[part::parts])) for part in range(parts)]

    def foresee(self, y: np.ndarray, x: np.ndarray, stacks: Stacks, packed: Packed, parts: Sequence[Adapted]) -> None:
        """The product takes all cores: nothing would be won beside it."""

    def adapt(self, y: np.ndarray, x: np.ndarray, stacks: Stacks, packed: Packed, parts: Sequence[Adapted]) -> None:
        self._crew.run(adapt, (y, x, stacks, packed), parts)

    def place(self, qkv: np.ndarray, rows: Rows, rope: Rope, cache: LayerCache) -> None:
        place(qkv, rows, rope, cache)

    def attend(self, mixed: np.ndarray, qkv: np.ndarray, cache: LayerCache, parts: Sequence[Rows]) -> None:
        self._crew.run(attend, (mixed, qkv, cache), parts)

    def norm(self, out: np.ndarray, x: np.ndarray, by: Norm) -> None:
        norm(out, x, by)

    def add_norm(self, out: np.ndarray, x: np.ndarray, delta: np.ndarray, by: Norm) -> None:
        add_norm(out, x, delta, by)

    def gate(self, out: np.ndarray, gate_up: np.ndarray) -> None:
        gate(out, gate_up)

    def best(self, logits: np.ndarray) -> tuple[list[int], list[bool]]:
        token_ids, finite = np.empty(len(logits), np.int64), np.empty(len(logits), np.bool_)
        best(logits, token_ids, finite)
        return token_ids.tolist(), finite.tolist()


def _side(side: Side) -> tuple[int, ...]:
    """As `pack` takes it: everything a file has is a multiple of 16 bits."""
    stored = side.stored
    width, rank = stored.shape if side.turned else stored.shape[::-1]
    return stored.begin // 2, _KINDS[stored.dtype], rank, width, side.at, side.rank, side.turned
