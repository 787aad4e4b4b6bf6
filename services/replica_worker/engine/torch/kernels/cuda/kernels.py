"""`port.Kernels` on a CUDA device, in Triton. Everything of a step is launched on the current stream and read back by
`best` alone, so a whole step can be captured as a graph.

Arrays of indices stay on the host as `index` made them until a `Runner` sends a step to the device, all of them in one
copy: `split_rows` and `split_adapted` cut them into tiles there, and what the other methods take are the runner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from services.replica_worker.engine.torch.kernels.port import (
    Adapted,
    LayerCache,
    Norm,
    Packed,
    Rope,
    Rows,
    Side,
    Stacks,
)
from services.replica_worker.engine.torch.stored import numbers_of

from . import rowwise
from .adapt import LINES, Tiles, adapt
from .attend import TILE_ROWS, attend
from .share import Share
from .streams import Streams
from .tiles import runs


class CudaKernels:
    """float32 and bfloat16, on one device. Every width of the model must be a multiple of 16.

    What `adapt` adds is owed to y until the next of `place`, `add_norm` and `gate`, which takes y: it is computed
    beside the product that makes y, which is why `foresee` must have announced it.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._owed: Share | None = None

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def index(self, values: Any) -> np.ndarray:
        return np.ascontiguousarray(values, dtype=np.int64)

    def pack(self, into: torch.Tensor, body: np.ndarray, sides: Sequence[Side]) -> int | None:
        """Rank after rank, A [r, in] and B [r, out]."""
        broken = (number for number, side in enumerate(sides) if not _packed(into, body, side))
        return next(broken, None)

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        self._streams.load(into, source)

    def split_adapted(self, adapted: Adapted) -> list[Tiles]:
        """One part, on the host."""
        tiles = runs(adapted.slots, LINES)
        return [Tiles(adapted.rows, np.column_stack((tiles, adapted.slots[tiles[:, 0]])))]

    def split_rows(self, rows: Rows) -> list[Rows]:
        """One part, on the host; its tiles are those that CUDA likes."""
        return [rows._replace(tiles=runs(rows.sequences, TILE_ROWS))]

    def foresee(self, y: Any, x: Any, stacks: Stacks, packed: Packed, parts: Sequence[Any]) -> None:
        [part] = parts
        extra = torch.empty_like(y)
        self._streams.aside(lambda: adapt(extra, x, stacks, packed, part))
        self._owed = Share(y, extra, part.adapted)

    def adapt(self, y: Any, x: Any, stacks: Stacks, packed: Packed, parts: Sequence[Any]) -> None:
        """Raises RuntimeError unless `foresee` was told of the same y."""
        if self._owed is None or self._owed.y is not y:
            raise RuntimeError("adapters of this product were not announced")
        self._streams.meet()

    def place(self, qkv: Any, rows: Rows, rope: Rope, cache: LayerCache) -> None:
        rowwise.place(self._settled(qkv), rows, rope, cache)

    def attend(self, mixed: Any, qkv: Any, cache: LayerCache, parts: Sequence[Rows]) -> None:
        [rows] = parts
        attend(mixed, qkv, cache, rows)

    def norm(self, out: Any, x: Any, by: Norm) -> None:
        rowwise.norm(out, x, by)

    def add_norm(self, out: Any, x: Any, delta: Any, by: Norm) -> None:
        rowwise.add_norm(out, x, self._settled(delta), by)

    def gate(self, out: Any, gate_up: Any) -> None:
        rowwise.gate(out, self._settled(gate_up))

    def best(self, logits: torch.Tensor) -> tuple[list[int], list[bool]]:
        found = torch.empty((len(logits), 2), dtype=torch.int32, device=logits.device)
        rowwise.best(found, logits)
        pairs = found.tolist()
        return [token_id for token_id, _ in pairs], [broken == 0 for _, broken in pairs]

    def _settled(self, y: Any) -> Share:
        """y with what is owed to it; afterwards nothing is."""
        owed, self._owed = self._owed, None
        return owed if owed is not None and owed.y is y else Share(y, None, None)


def _packed(into: torch.Tensor, body: np.ndarray, side: Side) -> bool:
    """Whether all of it is finite."""
    numbers = numbers_of(body, side.stored)
    ranks = numbers.t() if side.turned else numbers
    place = into[side.at : side.at + side.rank * ranks.shape[1]].view(side.rank, ranks.shape[1])
    place[: len(ranks)], place[len(ranks) :] = ranks, 0
    return bool(place.isfinite().all())
