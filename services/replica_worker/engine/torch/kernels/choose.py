"""Which kernels a device gets. What the others need is never imported."""

from __future__ import annotations

import torch

from .port import Kernels


def kernels_for(device: torch.device, threads: int) -> Kernels:
    """`threads` of the CPU, the caller's included. Raises ValueError for a device without kernels."""
    if device.type == "cpu":
        from .cpu import CpuKernels

        return CpuKernels(threads)
    raise ValueError(f"there are no kernels for a {device.type} device")
