"""Steps on a CUDA device: sent there in one copy, and replayed as a graph if they are one of a few kinds.

A step in which every sequence has one row, all of them sampled, is a decode step: padded to a row class with rows
at position -1, which are nobody's, it is the same launches every time, whoever is in it. So the launches of each
class, with adapters and without, are captured once. Other steps, those with prompts in them, are launched one by one.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import numpy as np
import torch

from services.replica_worker.engine.torch.cache import KvCache
from services.replica_worker.engine.torch.kernels.port import Rows
from services.replica_worker.engine.torch.linear import Activation
from services.replica_worker.engine.torch.model import LlamaModel, Step
from services.replica_worker.engine.torch.workspace import Workspace

from .adapt import Tiles
from .inbox import Inbox

Launch = Callable[[], object]
Capture = Callable[[Launch], Launch]
"""Makes of a launch that has run before another one that repeats it at once."""

_PER_ROW = 16
"""Numbers that a row brings at most, its share of every tile and the alignment of arrays included."""


class Runner:
    """What the engine uses in the place of a model on a CPU: the same `kernels`, `device`, `has_slots`, `multiply` and
    `forward`, for steps whose arrays are on the host."""

    device = torch.device("cpu")

    def __init__(self, model: LlamaModel, workspace: Workspace, context_blocks: int, capture: Capture) -> None:
        self.kernels = model.kernels
        self._model, self._workspace, self._width, self._capture = model, workspace, context_blocks, capture
        self._inbox = Inbox(workspace.row_classes[-1] * (_PER_ROW + context_blocks) + 64, model.device)
        self._graphs: dict[tuple[int, bool], Launch] = {}

    @property
    def has_slots(self) -> bool:
        return self._model.has_slots

    def multiply(self, rows: int) -> None:
        self._model.multiply(rows)

    def forward(self, step: Step, cache: KvCache) -> Activation:
        """See `LlamaModel.forward`. The first step of a class also runs it with and without adapters."""
        count = len(step.token_ids)
        if not _one_each(step):
            return self._model.forward(self._sent(step, count), cache)
        classes = self._workspace.head_classes
        padded = classes[bisect.bisect_left(classes, count)]
        sent = self._sent(step, padded)
        if (padded, False) not in self._graphs:
            self._prepare(padded, sent, cache)
        self._graphs[padded, len(step.adapted_parts) > 0]()
        head = self._workspace.head(count)
        return Activation(head.logits.tensor[:count], head.logits.view)

    def _prepare(self, padded: int, sent: Step, cache: KvCache) -> None:
        """A step may be run as often as one likes: it puts the same keys and values to the same places."""
        for adapted in (False, True):
            one = _with_parts(sent, adapted)

            def launch(step: Step = one) -> object:
                return self._model.forward(step, cache)

            launch()
            self._graphs[padded, adapted] = self._capture(launch)

    def _sent(self, step: Step, rows: int) -> Step:
        """The step on the device, with so many rows."""
        one_each = _one_each(step)
        positions, sequences, tables, tiles = step.rows
        count = rows if one_each else len(tables)
        known = np.zeros((count, self._width), np.int32)
        known[: len(tables), : tables.shape[1]] = tables
        arrays = [
            _padded(step.token_ids.numpy(), rows, 0),
            np.arange(rows) if one_each else step.sampled.numpy(),
            _padded(positions, rows, -1),
            np.arange(rows) if one_each else sequences,
            known,
            np.column_stack((np.arange(rows), np.arange(1, rows + 1))) if one_each else tiles,
            *_adapted(step, rows, one_each),
        ]
        token_ids, sampled, positions, sequences, known, tiles, *adapted = self._inbox.send(arrays)
        on_device = Rows(positions, sequences, known, tiles)
        parts = (Tiles(*adapted),) if one_each or step.adapted_parts else ()
        return Step(token_ids=token_ids, sampled=sampled, rows=on_device, row_parts=(on_device,), adapted_parts=parts)


def _one_each(step: Step) -> bool:
    """Whether every sequence has one row, and all of them are sampled."""
    return len(step.sampled) == len(step.rows.tables) == len(step.token_ids)


def _with_parts(step: Step, adapted: bool) -> Step:
    parts = step.adapted_parts if adapted else ()
    return Step(
        token_ids=step.token_ids, sampled=step.sampled, rows=step.rows, row_parts=step.row_parts, adapted_parts=parts
    )


def _adapted(step: Step, rows: int, padded: bool) -> Sequence[np.ndarray]:
    """The arrays of `Tiles`; padded to a tile per row, whether or not a row has an adapter."""
    flags = np.zeros(rows, np.int32)
    if not step.adapted_parts:
        return (np.zeros(rows), np.zeros((rows, 3)), flags) if padded else (np.zeros(0), np.zeros((0, 3)), flags)
    [part] = step.adapted_parts
    flags[part.rows] = 1
    if not padded:
        return part.rows, part.tiles, flags
    return _padded(part.rows, rows, 0), _padded(part.tiles, rows, 0), flags


def _padded(array: np.ndarray, rows: int, by: int) -> np.ndarray:
    full = np.full((rows, *array.shape[1:]), by, np.int32)
    full[: len(array)] = array
    return full
