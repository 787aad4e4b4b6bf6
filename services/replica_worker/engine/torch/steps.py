"""From the schedule's pieces to what the model computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from services.replica_worker.engine.batch import Piece
from services.replica_worker.engine.port import BASE_SLOT
from services.replica_worker.engine.sequence import Sequence as Running

from .kernels.port import TILE_ROWS, Adapted, Kernels, Rows
from .model import Step


def step_of(pieces: Sequence[Piece], running: Mapping[int, Running], kernels: Kernels, device: torch.device) -> Step:
    """`running` by row; each piece's sequence has blocks for [0, stop)."""
    sequences = [running[piece.row] for piece in pieces]
    token_ids = [
        token_id
        for piece, sequence in zip(pieces, sequences, strict=True)
        for token_id in sequence.token_ids[piece.start : piece.stop]
    ]
    counts = [piece.stop - piece.start for piece in pieces]
    ends = np.cumsum(counts)
    rows = _rows(pieces, [sequence.blocks for sequence in sequences], kernels)
    sampled = [end - 1 for piece, end in zip(pieces, ends.tolist(), strict=True) if piece.last]
    slots = np.repeat([sequence.request.slot for sequence in sequences], counts)
    return Step(
        token_ids=torch.tensor(token_ids, device=device),
        sampled=torch.tensor(sampled, dtype=torch.int64, device=device),
        rows=rows,
        row_parts=kernels.split_rows(rows),
        adapted_parts=adapted_parts(slots, kernels),
    )


def adapted_parts(slot_of_row: np.ndarray, kernels: Kernels) -> Sequence[Adapted]:
    """The rows that have an adapter, by slot; empty when every row of the step is on the base model."""
    order = np.argsort(slot_of_row, kind="stable")
    rows = order[np.count_nonzero(slot_of_row == BASE_SLOT) :]
    if not len(rows):
        return ()
    return kernels.split_adapted(Adapted(kernels.index(rows), kernels.index(slot_of_row[rows])))


def _rows(pieces: Sequence[Piece], blocks: Sequence[Sequence[int]], kernels: Kernels) -> Rows:
    tables = np.zeros((len(pieces), max(map(len, blocks))), np.int64)
    tiles: list[tuple[int, int]] = []
    end = 0
    for at, piece in enumerate(pieces):
        tables[at, : len(blocks[at])] = blocks[at]
        begin, end = end, end + piece.stop - piece.start
        tiles += [(first, min(first + TILE_ROWS, end)) for first in range(begin, end, TILE_ROWS)]
    return Rows(
        positions=kernels.index(np.concatenate([np.arange(piece.start, piece.stop) for piece in pieces])),
        sequences=kernels.index(np.repeat(np.arange(len(pieces)), [piece.stop - piece.start for piece in pieces])),
        tables=kernels.index(tables),
        tiles=kernels.index(tiles),
    )
