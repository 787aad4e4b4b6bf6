"""Runs inside vLLM's worker: tells what its LoRA slots really hold, and ends it when its replica is gone."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from vllm.platforms import current_platform

_ORPHAN_LOOK_S = 1.0
StackName = tuple[str, str, int]
"""Layer, side and which of the layer's parts."""


class SlotWitness:
    """Mixed into vLLM's worker class; every method is called by name through `collective_rpc`."""

    model_runner: Any
    remove_lora: Any

    def prepare_lora(self) -> str:
        """Once, before the first adapter. Returns what was done to vLLM's operators."""
        if not current_platform.is_cpu():
            return "vLLM's kernels are used as they are"
        from . import cpu_rows

        return cpu_rows.mend()

    def follow(self, replica_pid: int) -> None:
        """End with the replica, however it ends: an orphan would keep its memory and its GPU."""
        threading.Thread(target=_end_with, args=(replica_pid,), daemon=True, name="follow").start()

    def standing(self) -> list[int]:
        """The ids of the adapters whose weights are in a slot now."""
        return [lora_id for lora_id in self._tables.lora_index_to_id if lora_id is not None]

    def vacate(self, lora_id: int) -> None:
        """Nothing of the adapter is left, in a slot or beside it, however much of it had been loaded."""
        index = self._index_of(lora_id)
        self.remove_lora(lora_id)
        if index is not None:
            for module in self._tables.modules.values():
                module.reset_lora(index)

    def fingerprint(self, lora_id: int) -> str:
        """SHA-256 over everything that the slot of this adapter holds, zeros of the padding included; "" if it
        is in no slot."""
        index = self._index_of(lora_id)
        return "" if index is None else _digest((name, stack[index]) for name, stack in self._stacks())

    def expected(self, weights: str) -> str:
        """The fingerprint of a slot that holds exactly this prepared file; "" where a layer is split among
        workers, as then no worker holds it whole."""
        if any(module.tp_size > 1 for module in self._tables.modules.values()):
            return ""
        tensors = load_file(weights)
        return _digest((name, self._slot_of(name, stack, tensors)) for name, stack in self._stacks())

    @property
    def _tables(self) -> Any:
        return self.model_runner.lora_manager._adapter_manager

    def _index_of(self, lora_id: int) -> int | None:
        ids = self._tables.lora_index_to_id
        return ids.index(lora_id) if lora_id in ids else None

    def _stacks(self) -> Iterator[tuple[StackName, torch.Tensor]]:
        """Every stack [slots, 1, …] of the model. vLLM has one layer for q, k and v, with a stack for each."""
        for name, module in sorted(self._tables.modules.items()):
            for side, stacks in (("A", module.lora_a_stacked), ("B", module.lora_b_stacked)):
                for part, stack in enumerate(stacks):
                    yield (name, side, part), stack

    def _slot_of(self, name: StackName, stack: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        layer, side, part = name
        source = self._tables.packed_modules.get(layer, [layer])[part]
        slot = torch.zeros(stack.shape[1:], dtype=stack.dtype)
        tensor = tensors.get(f"base_model.model.{source}.lora_{side}.weight")
        if tensor is not None:
            slot[0, : tensor.shape[0], : tensor.shape[1]] = tensor
        return slot


def _digest(slots: Iterable[tuple[StackName, torch.Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, slot in slots:
        digest.update(f"{name}{tuple(slot.shape)}".encode())
        digest.update(slot.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _end_with(replica_pid: int) -> None:
    while _alive(replica_pid):
        time.sleep(_ORPHAN_LOOK_S)
    os._exit(1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
