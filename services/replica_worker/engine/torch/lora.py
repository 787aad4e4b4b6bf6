"""The adapted layer: per module one stack of all slots' A and B, looked up by the slot of each row.

    h = x Wᵀ + scale[s] · B[s] (A[s] x)        s = slot of the row

There is no loop over adapters and no copy of weights per row: each side is one gathered sum
(`embedding_bag`), in which a row reads exactly its own slot's numbers. So a row's result depends on
nothing else in the batch, bit for bit, and another customer's Inf cannot reach it. Rows on the base model
take no part: nothing is added to them, not even zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional

from services.replica_worker.engine.port import BASE_SLOT


class AdaptedRows:
    """Which rows of a step have an adapter: `rows` [m] in the step, `slots` [m], one per such row."""

    def __init__(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        self.rows = rows
        self.slots = slots
        self._lookups: dict[int, torch.Tensor] = {}

    @classmethod
    def of(cls, slot_of_row: Sequence[int], device: torch.device) -> AdaptedRows | None:
        """None when every row of the step is on the base model."""
        adapted = [(row, slot) for row, slot in enumerate(slot_of_row) if slot != BASE_SLOT]
        if not adapted:
            return None
        rows, slots = torch.tensor(adapted, dtype=torch.int64, device=device).unbind(1)
        return cls(rows, slots)

    def lookup(self, width: int) -> torch.Tensor:
        """[m, width]: the flat indices slot * width … slot * width + width - 1 of every adapted row."""
        if width not in self._lookups:
            within = torch.arange(width, dtype=torch.int64, device=self.slots.device)
            self._lookups[width] = self.slots.unsqueeze(1) * width + within
        return self._lookups[width]


class LoraStack:
    """One module's slots: `a` [slots, in, rank_limit], `b` [slots, rank_limit, out], `scale` [slots].

    Both are stored transposed against the usual A [r, in], B [out, r], so that what a row gathers is
    contiguous. Ranks below the limit leave zeros; an empty slot is all zero.
    """

    def __init__(self, slots: int, rank_limit: int, shape: tuple[int, int], like: torch.Tensor) -> None:
        out, inner = shape
        self.a = torch.zeros((slots, inner, rank_limit), dtype=like.dtype, device=like.device)
        self.b = torch.zeros((slots, rank_limit, out), dtype=like.dtype, device=like.device)
        self.scale = torch.zeros(slots, dtype=torch.float32, device=like.device)

    def add_to(self, y: torch.Tensor, x: torch.Tensor, adapted: AdaptedRows) -> None:
        """Add the adapters' share to y [n, out], in place, given the module's input x [n, in]."""
        _, inner, rank = self.a.shape
        mine = x.index_select(0, adapted.rows)
        low = _gathered_sum(adapted.lookup(inner), self.a.flatten(0, 1), mine)
        low = (low * self.scale[adapted.slots].unsqueeze(1)).to(x.dtype)
        y.index_add_(0, adapted.rows, _gathered_sum(adapted.lookup(rank), self.b.flatten(0, 1), low))

    def store(self, slot: int, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
        """Put a [in, r] and b [r, out], r <= rank_limit, into a slot that no row is using."""
        rank = a.shape[1]
        self.a[slot, :, :rank] = a
        self.a[slot, :, rank:] = 0
        self.b[slot, :rank] = b
        self.b[slot, rank:] = 0
        self.scale[slot] = scale

    def clear(self, slot: int) -> None:
        self.a[slot] = 0
        self.b[slot] = 0
        self.scale[slot] = 0

    def tensors(self, slot: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What stands in the slot now: views of a, b and scale."""
        return self.a[slot], self.b[slot], self.scale[slot]


def _gathered_sum(indices: torch.Tensor, table: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """[m, width]: for each row i the sum over j of factors[i, j] * table[indices[i, j]]."""
    return functional.embedding_bag(indices, table, per_sample_weights=factors, mode="sum")
