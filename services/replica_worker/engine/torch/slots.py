"""The slots of one engine: numbered places for adapters, filled, emptied and fingerprinted."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import torch

from services.replica_worker.engine.port import BASE_SLOT

from .config import ModelConfig
from .kernels.port import Kernels, Stacks
from .layout import TorchAdapter, capacity_of, fingerprint_of, modules_of


class AdapterSlots:
    """Places for adapters of at most `rank_limit`. `stacks` is what the kernels read.

    All methods block for the time of a copy and may run on any thread while steps run: no live request is on a slot
    that is being written. The row of one that was just aborted may be; what becomes of it is dropped, and whatever
    mixture of two tables it reads leads to within the slot, because modules lie in one order and none begins later
    than at the highest rank. Writers take turns.
    """

    def __init__(self, config: ModelConfig, slots: int, rank_limit: int, like: torch.Tensor, kernels: Kernels) -> None:
        self._writing = threading.Lock()
        self._kernels = kernels
        # Written once, so that the system hands the memory out now and no load waits for it.
        self._weights = torch.empty((slots, capacity_of(config, rank_limit)), dtype=like.dtype, device=like.device)
        self._weights.zero_()
        self._places = torch.zeros((slots, modules_of(config), 3), dtype=torch.int64, device=like.device)
        self._scales = torch.zeros((slots, modules_of(config)), dtype=torch.float32, device=like.device)
        self._lengths = [0] * slots
        self.stacks = Stacks(*(kernels.view(tensor) for tensor in (self._weights, self._places, self._scales)))

    @torch.inference_mode()
    def store(self, slot: int, adapter: TorchAdapter) -> None:
        """Afterwards the slot holds exactly this adapter; modules that it does not adapt are left alone. If the copy
        raises, the slot adapts nothing."""
        with self._writing:
            self._forget(slot)
            length = len(adapter.weights)
            self._kernels.copy(self._weights[slot, :length], adapter.weights)
            self._kernels.copy(self._scales[slot], torch.from_numpy(adapter.scales))
            self._kernels.copy(self._places[slot], torch.from_numpy(adapter.places))
            self._lengths[slot] = length

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        """Afterwards the slot adapts nothing: no module has a rank in it."""
        with self._writing:
            self._forget(slot)

    @torch.inference_mode()
    def weights_of(self, slot: int) -> torch.Tensor:
        """What stands in the slot now: a view of the weights, as long as its adapter is."""
        return self._weights[slot, : self._lengths[slot]]

    @torch.inference_mode()
    def fingerprint(self, slot: int) -> str:
        """SHA-256 (hex) over what stands in the slot; BASE_SLOT: over nothing."""
        if slot == BASE_SLOT:
            return hashlib.sha256().hexdigest()
        table: list[np.ndarray] = [tensor[slot].cpu().numpy() for tensor in (self._places, self._scales)]
        return fingerprint_of(self.weights_of(slot), *table)

    def _forget(self, slot: int) -> None:
        """By the way that adapters come, so that none comes first and is forgotten afterwards."""
        for tensor in (self._places[slot], self._scales[slot]):
            self._kernels.copy(tensor, torch.zeros(tensor.shape, dtype=tensor.dtype))
        self._lengths[slot] = 0
