"""One safetensors file written tensor by tensor: no more than one of them is in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open

from shared.merging.pairs import MergeRefused

_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
          "I8": 1, "U8": 1, "BOOL": 1}  # fmt: skip
_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
MERGED_DTYPES = tuple(_NAMES.values())
"""What a weight can be that another one is added to."""

Change = Callable[[str, torch.Tensor], torch.Tensor]
"""What becomes of a tensor; its shape stays."""


class Entry(msgspec.Struct, frozen=True):
    """One tensor as a header describes it. `dtype` in the format's own words: "BF16"."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        size = _BYTES[self.dtype]
        for length in self.shape:
            size *= length
        return size


def entries_of(path: Path) -> list[Entry]:
    """What is in a safetensors file. Raises SafetensorError, OSError, and MergeRefused for an exotic dtype."""
    with safe_open(str(path), framework="pt") as file:
        slices = ((name, file.get_slice(name)) for name in file.keys())  # noqa: SIM118 - it is no dict
        found = [Entry(name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices]
    for entry in found:
        if entry.dtype not in _BYTES:
            raise MergeRefused(f"{entry.name} in {path.name} is {entry.dtype}, which is not copied.")
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """Raises KeyError for what no weight is merged into."""
    return _NAMES[dtype]


def write_shard(source: Path, target: Path, entries: list[Entry], change: Change) -> None:
    """Write `entries` (of `source`, perhaps with another dtype) to the new file `target`, each tensor through
    `change` on its way. The file is on the disk when this returns; after a failure a part of it is."""
    # The widest first, as the format's own library does, so that every tensor is aligned.
    ordered = sorted(entries, key=lambda entry: (-_BYTES[entry.dtype], entry.name))
    with safe_open(str(source), framework="pt") as file, target.open("xb") as out:
        out.write(_header(ordered, file.metadata() or {}))
        for tensor in _changed(file, ordered, change):
            out.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
            del tensor  # before the next one is read
        out.flush()
        os.fsync(out.fileno())


def _changed(file: Any, ordered: list[Entry], change: Change) -> Iterator[torch.Tensor]:
    for entry in ordered:
        yield change(entry.name, file.get_tensor(entry.name))


def _header(ordered: list[Entry], metadata: dict[str, str]) -> bytes:
    described: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    begin = 0
    for entry in ordered:
        end = begin + entry.size_bytes
        described[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (begin, end)}
        begin = end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
