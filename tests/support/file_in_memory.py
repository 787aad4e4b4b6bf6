"""Adapters of chosen numbers as if they had just been read from a file."""

from __future__ import annotations

import numpy as np
import torch

from services.replica_worker.engine.torch.adapter import AdapterFile, AdapterLimits, CheckedAdapter, FileModule
from services.replica_worker.engine.torch.config import ModelConfig
from services.replica_worker.engine.torch.kernels.port import MOST_RANKS, Kernels
from services.replica_worker.engine.torch.layout import TorchAdapter, lay_out
from services.replica_worker.engine.torch.stored import DTYPES, Stored

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def laid_out(adapter: CheckedAdapter, config: ModelConfig, kernels: Kernels) -> TorchAdapter:
    """As an engine of the adapter's own dtype has it in RAM."""
    dtype = next(iter(adapter.modules.values())).a.dtype
    limits = AdapterLimits(model=config, base_model_hash="", rank_limit=MOST_RANKS, dtype=dtype)
    return lay_out(file_in_memory(adapter), limits, kernels)


def file_in_memory(adapter: CheckedAdapter) -> AdapterFile:
    """A file with these numbers in their own dtypes."""
    body = bytearray()

    def stored(tensor: torch.Tensor) -> Stored:
        begin = len(body)
        body.extend(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return Stored(_NAMES[tensor.dtype], tuple(tensor.shape), begin)

    modules = {
        place: FileModule(stored(module.a.t()), stored(module.b.t()), module.a.shape[1], module.scale)
        for place, module in sorted(adapter.modules.items())
    }
    return AdapterFile(spec=adapter.spec, body=np.frombuffer(body, np.uint8), modules=modules)
