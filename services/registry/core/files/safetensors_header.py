"""The header of a safetensors file, read without trusting a byte of it.

A file is: 8 bytes with the header's length (little-endian), the header (JSON), the tensors' bytes without a
gap. Whatever else a file is, the answer is a HeaderError with one sentence; nothing is ever allocated by a
size that the file merely claims.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

PREFIX_BYTES = 8
LARGEST_HEADER_BYTES = 4 << 20
"""A 7B adapter on every layer needs about 60 kB."""

_DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


class HeaderError(Exception):
    """The file is not a whole, well-formed safetensors file; the message is one sentence."""


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor; its bytes are `begin` to `end` of the file (not of the part behind the header)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The tensors in the order of their bytes."""

    tensors: tuple[Tensor, ...]
    size_bytes: int
    """What the file's size must be."""


def header_bytes(prefix: bytes) -> int:
    """How long the JSON is that follows `prefix` (the file's first 8 bytes, or all of a shorter file).

    Raises HeaderError if the file is too short to have a header, or claims one that cannot be.
    """
    if len(prefix) < PREFIX_BYTES:
        raise HeaderError(f"the file is {len(prefix)} bytes long, too short for a safetensors header")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > LARGEST_HEADER_BYTES:
        raise HeaderError(f"the header claims {length} bytes, more than the {LARGEST_HEADER_BYTES} allowed")
    return length


def parse_header(head: bytes) -> Header:
    """The header from a file's first bytes. Raises HeaderError, and nothing else."""
    length = header_bytes(head[:PREFIX_BYTES])
    text = head[PREFIX_BYTES : PREFIX_BYTES + length]
    if len(text) < length:
        raise HeaderError(f"the header claims {length} bytes but the file has {len(text)} after its length")
    entries = _entries(text)
    _check_metadata(entries.pop("__metadata__", {}))
    begin = PREFIX_BYTES + length
    tensors = sorted((_tensor(name, entry, begin) for name, entry in entries.items()), key=lambda t: (t.begin, t.end))
    return Header(tensors=tuple(tensors), size_bytes=_end_of(tensors, begin))


def check_complete(header: Header, size_bytes: int) -> None:
    """Whether the file ends where its header says. Raises HeaderError."""
    if size_bytes < header.size_bytes:
        raise HeaderError(f"it is cut short: {size_bytes} bytes of the {header.size_bytes} that its header describes")
    if size_bytes > header.size_bytes:
        raise HeaderError(f"it ends with {size_bytes - header.size_bytes} bytes that its header does not describe")


def _entries(text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except HeaderError:
        raise
    except (ValueError, RecursionError) as error:
        raise HeaderError("the header is not valid JSON") from error
    if not isinstance(entries, dict):
        raise HeaderError("the header is not a JSON object")
    return entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal names they take, so there must be one."""
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise HeaderError("the header names a tensor or a field twice")
    return seen


def _check_metadata(entry: Any) -> None:
    """The free text that some writers add: nobody here reads it, other readers must be able to."""
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise HeaderError("the header's __metadata__ is not a map of texts")


def _tensor(name: str, entry: Any, data_begin: int) -> Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise HeaderError(f"tensor {name!r} needs dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPE_BYTES:
        raise HeaderError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not _sizes(shape):
        raise HeaderError(f"tensor {name!r} has a shape that is no list of sizes")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderError(f"tensor {name!r} has data_offsets that are no begin and end")
    needed, given = math.prod(shape) * _DTYPE_BYTES[dtype], offsets[1] - offsets[0]
    if needed != given:
        raise HeaderError(f"tensor {name!r} needs {needed} bytes for its shape but its data_offsets give {given}")
    return Tensor(
        name=name, dtype=dtype, shape=tuple(shape), begin=data_begin + offsets[0], end=data_begin + offsets[1]
    )


def _sizes(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= 8 and all(type(size) is int and 0 <= size < 1 << 48 for size in value)
    )


def _end_of(tensors: list[Tensor], data_begin: int) -> int:
    """Every byte behind the header belongs to exactly one tensor; where the last one ends."""
    at = data_begin
    for tensor in tensors:
        if tensor.begin < at:
            raise HeaderError(f"tensor {tensor.name!r} overlaps the one before it")
        if tensor.begin > at:
            raise HeaderError(f"there is a gap of {tensor.begin - at} bytes before tensor {tensor.name!r}")
        at = tensor.end
    return at
