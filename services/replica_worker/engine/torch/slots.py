"""The slots of one engine: every module's stack, filled, emptied and fingerprinted together."""

from __future__ import annotations

import hashlib
import threading

import torch

from services.replica_worker.engine.port import BASE_SLOT

from .adapter import Place, TorchAdapter
from .config import MODULES, ModelConfig
from .lora import LoraStack


class AdapterSlots:
    """Numbered places for adapters of at most `rank_limit`; `stacks` has one entry per layer and module.

    All methods block for the time of a copy and may run on any thread while steps run, because a step
    reads only the slots of its own rows and no row is on a slot that is being written. Writers take turns,
    so that a copy whose caller has given up can never mix with the next one.
    """

    def __init__(self, config: ModelConfig, slots: int, rank_limit: int, like: torch.Tensor) -> None:
        self._writing = threading.Lock()
        self._config, self._rank_limit, self._like = config, rank_limit, like
        self.stacks: dict[Place, LoraStack] = {
            (layer, module): LoraStack(slots, rank_limit, config.shape_of(module), like)
            for layer in range(config.layers)
            for module in MODULES
        }

    @torch.inference_mode()
    def store(self, slot: int, adapter: TorchAdapter) -> None:
        """Afterwards the slot holds exactly this adapter; modules that it does not adapt are zero."""
        with self._writing:
            for place, stack in self.stacks.items():
                module = adapter.modules.get(place)
                if module is None:
                    stack.clear(slot)
                else:
                    stack.store(slot, module.a, module.b, module.scale)

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        with self._writing:
            for stack in self.stacks.values():
                stack.clear(slot)

    def fingerprint_of(self, adapter: TorchAdapter) -> str:
        """Of a slot that holds exactly this adapter: the same stores, into one slot that nothing else writes."""
        with torch.inference_mode():
            alone = AdapterSlots(self._config, 1, self._rank_limit, self._like)
        alone.store(0, adapter)
        return alone.fingerprint(0)

    def fingerprint(self, slot: int) -> str:
        """SHA-256 (hex) over what stands in the slot, module by module; BASE_SLOT: over nothing."""
        digest = hashlib.sha256()
        if slot != BASE_SLOT:
            for place in sorted(self.stacks):
                for tensor in self.stacks[place].tensors(slot):
                    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()
