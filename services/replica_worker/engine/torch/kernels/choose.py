"""What a device gets: its kernels, and who runs its steps. What the others need is never imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .port import Kernels

if TYPE_CHECKING:
    from services.replica_worker.engine.torch.model import LlamaModel
    from services.replica_worker.engine.torch.workspace import Workspace

    from .cuda.runner import Runner


def kernels_for(device: torch.device, threads: int) -> Kernels:
    """`threads` of the CPU, the caller's included. Raises ValueError for a device without kernels."""
    if device.type == "cpu":
        from .cpu import CpuKernels

        return CpuKernels(threads)
    if device.type == "cuda":
        from .cuda.kernels import CudaKernels
        from .cuda.streams import DeviceStreams

        return CudaKernels(DeviceStreams(device))
    raise ValueError(f"there are no kernels for a {device.type} device")


def runner_for(
    device: torch.device, model: LlamaModel, workspace: Workspace, context_blocks: int
) -> LlamaModel | Runner:
    """Who runs the model's steps: on a CPU the model itself. `context_blocks`: the most that a sequence has."""
    if device.type == "cpu":
        return model
    from .cuda.runner import Runner
    from .cuda.streams import Graphs

    return Runner(model, workspace, context_blocks, Graphs(device).capture)
