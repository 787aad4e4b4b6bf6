"""The way of a step's index arrays to the device: one buffer on either side, one copy a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

_ALIGNED = 4
"""Every array begins at 16 bytes, as Triton has it noted for the pointers that it compiled for."""


class Inbox:
    """For arrays of so many numbers in all; those of one length list after list lie in the same places."""

    def __init__(self, numbers: int, device: torch.device) -> None:
        on_device = device.type == "cuda"
        self._here = torch.zeros(numbers, dtype=torch.int32, pin_memory=on_device)
        self._there = torch.zeros(numbers, dtype=torch.int32, device=device)
        self._taken = torch.cuda.Event() if on_device else None

    def send(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The arrays on the device, int32, until the next call. Raises ValueError for more than there is room for."""
        begins = [0]
        for array in arrays:
            begins.append(begins[-1] + -(-array.size // _ALIGNED) * _ALIGNED)
        if begins[-1] > len(self._here):
            raise ValueError(f"a step of {begins[-1]} indices is larger than {len(self._here)}")
        if self._taken:
            self._taken.synchronize()  # the former step's copy may still be reading
        here = self._here.numpy()
        for begin, array in zip(begins, arrays, strict=False):
            here[begin : begin + array.size] = array.reshape(-1)
        self._there[: begins[-1]].copy_(self._here[: begins[-1]], non_blocking=True)
        if self._taken:
            self._taken.record()
        return [
            self._there[begin : begin + math.prod(array.shape)].view(array.shape)
            for begin, array in zip(begins, arrays, strict=False)
        ]
