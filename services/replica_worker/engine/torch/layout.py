"""How an adapter lies in memory: in host RAM exactly as in a slot, so that a load is one copy of its own bytes.

Module after module, A then B, each in the order in which the kernels read it, ranks padded with zeros to a
multiple that the kernels ask for; a table beside it says where every module begins. An adapter of a smaller
rank or of fewer modules is smaller, in RAM and in the work of a step.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import torch

from services.replica_worker.engine.port import AdapterSpec

from .adapter import AdapterFile, AdapterLimits, not_finite
from .config import MODULES, ModelConfig, read_config
from .kernels.port import RANK_MULTIPLE, Kernels, Side
from .policy import TorchPolicy

LAYOUT = 1
"""To be counted up whenever the same adapter would lie otherwise: digests of slots are on record by it."""


class TorchAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter in host RAM: `weights` flat in the engine's dtype, `places` [modules, 3] and `scales`
    [modules] as `kernels.port.Stacks` has them for a slot."""

    spec: AdapterSpec
    weights: torch.Tensor
    places: np.ndarray
    scales: np.ndarray

    @property
    def size_bytes(self) -> int:
        return self.weights.nbytes + self.places.nbytes + self.scales.nbytes


def modules_of(config: ModelConfig) -> int:
    """How many modules a model has; module m of layer l is number l * len(MODULES) + m."""
    return config.layers * len(MODULES)


def capacity_of(config: ModelConfig, rank_limit: int) -> int:
    """How many numbers an adapter of the highest rank in every module has."""
    return config.layers * padded(rank_limit) * sum(sum(config.shape_of(module)) for module in MODULES)


def bytes_of_slots(folder: Path, policy: TorchPolicy) -> int:
    """What the slots of an engine take. Raises ModelUnusable."""
    dtype: torch.dtype = getattr(torch, policy.dtype)
    return policy.slots * capacity_of(read_config(folder), policy.rank_limit) * dtype.itemsize


def padded(rank: int) -> int:
    return -(-rank // RANK_MULTIPLE) * RANK_MULTIPLE


def lay_out(file: AdapterFile, limits: AdapterLimits, kernels: Kernels, pinned: bool = False) -> TorchAdapter:
    """Blocking. `pinned` host memory is what a GPU copies from without a detour.

    Raises AdapterUnusable for numbers that are not finite in the engine's dtype, naming the tensor.
    """
    places = np.zeros((modules_of(limits.model), 3), np.int64)
    scales = np.zeros(modules_of(limits.model), np.float32)
    sides: list[Side] = []
    end = 0
    for (layer, name), module in file.modules.items():
        number, rank = layer * len(MODULES) + MODULES.index(name), padded(module.rank)
        a, b = Side(module.a, end, rank, False), Side(module.b, end + rank * module.a.shape[1], rank, True)
        places[number], scales[number] = (a.at, b.at, rank), module.scale
        sides += [a, b]
        end = b.at + rank * module.b.shape[0]
    weights = torch.empty(end, dtype=limits.dtype, pin_memory=pinned)
    broken = kernels.pack(weights, file.body, sides)
    if broken is not None:
        raise not_finite(list(file.modules)[broken // 2], "AB"[broken % 2])
    return TorchAdapter(spec=file.spec, weights=weights, places=places, scales=scales)


def fingerprint_of(weights: torch.Tensor, places: np.ndarray, scales: np.ndarray) -> str:
    """SHA-256 (hex) over an adapter as it lies in memory, its table included."""
    digest = hashlib.sha256()
    for array in (places, scales, weights.cpu().view(torch.uint8).numpy()):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
