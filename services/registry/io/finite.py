"""Looks for NaN and Inf in a file while it streams by, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.registry.core.files.safetensors_header import Tensor

_EXPONENTS = {"F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80), "F32": ("<u4", 0x7F800000)}
"""How to read a value as an integer, and its exponent bits: all of them set means NaN or Inf."""


class FiniteScan:
    """`tensors` in the order of their bytes; others than 16- and 32-bit floats are not looked at."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = [tensor for tensor in tensors if tensor.dtype in _EXPONENTS and tensor.end > tensor.begin]
        self._next = 0
        self._rest = b""
        self._not_finite: list[str] = []

    @property
    def not_finite(self) -> tuple[str, ...]:
        """The tensors in which something was found so far."""
        return tuple(self._not_finite)

    def feed(self, position: int, chunk: bytes) -> None:
        """The file's bytes from `position` on; chunks come in order."""
        end = position + len(chunk)
        while self._next < len(self._tensors):
            tensor = self._tensors[self._next]
            self._look(tensor, chunk[max(tensor.begin - position, 0) : max(tensor.end - position, 0)])
            if tensor.end > end:
                return
            self._next += 1
            self._rest = b""

    def _look(self, tensor: Tensor, piece: bytes) -> None:
        """A value may be cut by the end of a chunk: its first bytes wait for the next."""
        kind, exponent = _EXPONENTS[tensor.dtype]
        piece = self._rest + piece
        whole = len(piece) - len(piece) % np.dtype(kind).itemsize
        values = np.frombuffer(piece, dtype=kind, count=whole // np.dtype(kind).itemsize)
        self._rest = piece[whole:]
        found = bool(((values & exponent) == exponent).any())
        if found and tensor.name not in self._not_finite[-1:]:
            self._not_finite.append(tensor.name)
