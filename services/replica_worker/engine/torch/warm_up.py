"""Every size of step once, with and without adapters, before the first customer: what compilers and libraries
set up at the first use, they set up here."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch

from services.replica_worker.engine.port import BASE_SLOT

from .cache import KvCache
from .kernels.port import RANK_MULTIPLE, Kernels, Rows, Side
from .model import LlamaModel, Step
from .steps import adapted_parts
from .stored import Stored
from .workspace import Workspace

_log = logging.getLogger(__name__)


def warm_up(model: LlamaModel, cache: KvCache, workspace: Workspace) -> None:
    """Raises what a step raises: no customer's would come to a better end."""
    began_s = time.perf_counter()
    for slot in (0, BASE_SLOT) if model.has_slots else (BASE_SLOT,):
        model.forward(_step(1, 1, slot, model), cache)
    _pack(model.kernels, workspace.of(1).x.tensor.dtype)
    compiled_s = time.perf_counter()
    for rows in workspace.row_classes:
        model.multiply(rows)
    for sampled in workspace.head_classes:
        model.kernels.best(model.forward(_step(sampled, sampled, BASE_SLOT, model), cache).view)
    _log.info(
        "kernels ready after %.1f s, %d sizes of step after another %.1f s",
        compiled_s - began_s,
        len(workspace.row_classes),
        time.perf_counter() - compiled_s,
    )


def _pack(kernels: Kernels, dtype: torch.dtype) -> None:
    """One module's A, as the first adapter will be read."""
    side = Side(Stored("F32", (RANK_MULTIPLE, 16), 0), 0, RANK_MULTIPLE, False)
    count = RANK_MULTIPLE * 16
    kernels.pack(torch.empty(count, dtype=dtype), np.zeros(4 * count, np.uint8), [side])


def _step(count: int, sampled: int, slot: int, model: LlamaModel) -> Step:
    """`count` sequences of one token each, all in block 0, which is nobody's yet."""
    rows = _rows(count, model.kernels)
    return Step(
        token_ids=torch.zeros(count, dtype=torch.int64, device=model.device),
        sampled=torch.arange(sampled, device=model.device),
        rows=rows,
        row_parts=model.kernels.split_rows(rows),
        adapted_parts=adapted_parts(np.full(count, slot), model.kernels),
    )


def _rows(count: int, kernels: Kernels) -> Rows:
    each = np.arange(count)
    return Rows(
        positions=kernels.index(np.zeros(count)),
        sequences=kernels.index(each),
        tables=kernels.index(np.zeros((count, 1))),
        tiles=kernels.index(np.stack((each, each + 1), axis=1)),
    )
