"""A safetensors file in memory: its numbers as they are, and what its header says of them.

Read by hand: every way through the library copies tensor by tensor under the GIL, for which steps wait.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import torch

DTYPES: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""By their names in a file, those that numbers are read from."""

_LENGTH_BYTES, _WORD_BYTES = 8, 2
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Stored(NamedTuple):
    """Where a tensor stands: from byte `begin` of the file's body on. `dtype` is the file's name for it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int


class StoredFile(NamedTuple):
    """`body` uint8: what follows the header, all of which belongs to exactly one of `tensors`."""

    body: np.ndarray
    tensors: Mapping[str, Stored]


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


def read_stored(path: Path) -> StoredFile:
    """Read into memory first: a file that is cut short under a memory map would end the process.

    Blocking. Raises OSError, and ValueError for what is not a whole safetensors file.
    """
    with path.open("rb") as file:
        header_bytes, body_bytes = _lengths(file)
        header = file.read(header_bytes)
        body = np.empty(body_bytes, np.uint8)
        if len(header) < header_bytes or file.readinto(body) < body_bytes:
            raise ValueError("it ended while it was read")
    entries = _entries(header)
    _check_places(entries, body_bytes)
    return StoredFile(
        body,
        {name: Stored(entry.dtype, entry.shape, entry.data_offsets[0]) for name, entry in entries.items()},
    )


def numbers_of(body: np.ndarray, stored: Stored) -> torch.Tensor:
    """A view, as the file has them. The dtype must be one of DTYPES."""
    dtype = DTYPES[stored.dtype]
    end = stored.begin + math.prod(stored.shape) * dtype.itemsize
    return torch.from_numpy(body[stored.begin : end]).view(dtype).view(stored.shape)


def _lengths(file: BinaryIO) -> tuple[int, int]:
    """(of the header, of the body)"""
    size = os.fstat(file.fileno()).st_size
    header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if size < _LENGTH_BYTES or header_bytes > size - _LENGTH_BYTES:
        raise ValueError(f"its {size} bytes are fewer than its header is said to have")
    return header_bytes, size - _LENGTH_BYTES - header_bytes


def _entries(header: bytes) -> dict[str, _Entry]:
    try:
        found = msgspec.json.decode(header, type=dict[str, Any])
        found.pop("__metadata__", None)
        return msgspec.convert(found, dict[str, _Entry])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"its header: {error}") from error


def _check_places(entries: Mapping[str, _Entry], body_bytes: int) -> None:
    """One after another they fill the body: nothing is read twice, beside it, or not at all."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, after = entry.data_offsets
        dtype = DTYPES.get(entry.dtype)
        if begin != end or after < begin:
            raise ValueError(f"{name} does not begin where the tensor before it ends")
        if dtype and after - begin != math.prod(entry.shape) * dtype.itemsize:
            raise ValueError(f"{name} has {after - begin} bytes, which is not what its shape takes")
        end = after
    if end != body_bytes:
        raise ValueError(f"its tensors end at byte {end} of {body_bytes}")
