"""Looks for NaN and Inf in a file while it streams by, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.registry.core.files.safetensors_header import Tensor

Bytes = bytes | bytearray | memoryview
_EXPONENTS = {"F16": ("2", 0x7C00), "BF16": ("2", 0x7F80), "F32": ("4", 0x7F800000)}
"""How many bytes a value has, and its exponent bits: all of them set means NaN or Inf."""


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

    def feed(self, position: int, chunk: Bytes) -> None:
        """The file's bytes from `position` on; chunks come in order."""
        view = memoryview(chunk)
        end = position + len(view)
        while self._next < len(self._tensors):
            tensor = self._tensors[self._next]
            self._look(tensor, view[max(tensor.begin - position, 0) : max(tensor.end - position, 0)])
            if tensor.end > end:
                return
            self._next += 1
            self._rest = b""

    def _look(self, tensor: Tensor, piece: memoryview) -> None:
        """A value may be cut by the end of a chunk: its first bytes wait for the next."""
        width, exponent = _EXPONENTS[tensor.dtype]
        if self._rest:
            missing = int(width) - len(self._rest)
            cut, piece = self._rest + bytes(piece[:missing]), piece[missing:]
            if len(cut) < int(width):
                self._rest = cut
                return
            self._judge(tensor, _has_exponent(memoryview(cut), width, exponent))
        whole = len(piece) - len(piece) % int(width)
        self._rest = bytes(piece[whole:])
        self._judge(tensor, _has_exponent(piece[:whole], width, exponent))

    def _judge(self, tensor: Tensor, found: bool) -> None:
        if found and tensor.name not in self._not_finite[-1:]:
            self._not_finite.append(tensor.name)


def _has_exponent(values: memoryview, width: str, exponent: int) -> bool:
    """Whether one of them has all bits of `exponent`. As integers those lie above all others of their sign: two maxima
    tell, and nothing is written down on the way."""
    if not values:
        return False
    sign = 1 << (8 * int(width) - 1)
    largest, largest_positive = np.frombuffer(values, f"<u{width}").max(), np.frombuffer(values, f"<i{width}").max()
    return bool(largest >= sign | exponent or largest_positive >= exponent)
