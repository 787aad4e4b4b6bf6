"""Runs inside vLLM's worker: tells what its LoRA slots really hold, and ends it when its replica is gone."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from vllm.platforms import current_platform

_ORPHAN_LOOK_S = 1.0


class SlotWitness:
    """Mixed into vLLM's worker class; every method is called by name through `collective_rpc`."""

    model_runner: Any

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

    def fingerprint(self, lora_id: int) -> str:
        """SHA-256 over everything that the slot of this adapter holds, zeros of the padding included.

        Raises ValueError if the adapter is in no slot.
        """
        index = self._tables.lora_index_to_id.index(lora_id)
        digest = hashlib.sha256()
        for name, tensor in self._stacks():
            digest.update(f"{name}{tuple(tensor.shape[1:])}".encode())
            digest.update(tensor[index].detach().cpu().contiguous().view(torch.uint8).numpy())
        return digest.hexdigest()

    @property
    def _tables(self) -> Any:
        return self.model_runner.lora_manager._adapter_manager

    def _stacks(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, module in sorted(self._tables.modules.items()):
            for side, stacks in (("A", module.lora_a_stacked), ("B", module.lora_b_stacked)):
                for part, tensor in enumerate(stacks):
                    yield f"{name}.{side}{part}", tensor


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
