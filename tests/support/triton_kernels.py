"""The CUDA kernels without a CUDA device: Triton interprets them on tensors of the CPU.

Triton's interpreter keeps bfloat16 as bits, multiplies those bits in `dot`, and cuts where the device rounds. Both are
put right here, for as long as the process lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from services.replica_worker.engine.torch.kernels.cuda.kernels import CudaKernels
from services.replica_worker.engine.torch.kernels.port import Rows

_convert_others = interpreter._convert_float


def _convert(numbers: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    if (source, target) == (tl.bfloat16, tl.float32):
        return numbers.view(np.uint16).astype(np.uint32) << 16
    if (source, target) == (tl.float32, tl.bfloat16):
        exact = torch.from_numpy(np.ascontiguousarray(numbers, np.float32))
        return exact.to(torch.bfloat16).view(torch.uint16).numpy()
    return _convert_others(numbers, source, target, rounding)


def _dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
    wide = [self.cast_impl(side, tl.float32).data if side.dtype == tl.bfloat16 else side.data for side in (a, b)]
    return interpreter.TensorHandle(np.matmul(*wide, dtype=np.float32) + d.data, d.dtype.scalar)


interpreter._convert_float = _convert
interpreter.InterpreterBuilder.create_dot = _dot


class InOrder:
    """Streams of a device that does everything at once."""

    def aside(self, work: Callable[[], None]) -> None:
        work()

    def meet(self) -> None:
        pass

    def load(self, into: torch.Tensor, source: torch.Tensor) -> None:
        into.copy_(source)


def interpreted_kernels() -> CudaKernels:
    return CudaKernels(InOrder())


def sent(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    """As a runner sends it."""
    return torch.as_tensor(array).to(torch.int32)


def sent_rows(rows: Rows) -> Rows:
    return Rows(*(sent(array) for array in rows))
