"""A weights file that is long and costs nothing: zeros that no disk holds, below a right header."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord, ModuleShape
from tests.support.adapter_files import BASE, announcement, crafted, name_of

_RANK, _WIDTH, _VALUE_BYTES = 8, 1 << 19, 4
_HALF_BYTES = _RANK * _WIDTH * _VALUE_BYTES
LAYER_BYTES = 2 * _HALF_BYTES
"""32 MiB for each layer of the base; the header comes on top."""


def wide_base(layers: int = 1) -> BaseModelRecord:
    """One module in each of so many layers."""
    return msgspec.structs.replace(
        BASE,
        base_model_hash=hashlib.sha256(f"wide base of {layers}".encode()).hexdigest(),
        name=f"wide-base-of-{layers}",
        layers=layers,
        modules={"q_proj": ModuleShape(in_features=_WIDTH, out_features=_WIDTH)},
    )


def write_long_file(path: Path, layers: int = 1) -> AdapterRegistered:
    """For `wide_base(layers)`. The announcement for it lacks a `weights_uri`."""
    shapes = {"A": [_RANK, _WIDTH], "B": [_WIDTH, _RANK]}
    names = [(layer, side) for layer in range(layers) for side in shapes]
    header = {
        name_of(layer, "q_proj", side): {
            "dtype": "F32", "shape": shapes[side], "data_offsets": [at * _HALF_BYTES, (at + 1) * _HALF_BYTES],
        }
        for at, (layer, side) in enumerate(names)
    }  # fmt: skip
    head = crafted(header)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + layers * LAYER_BYTES)
    digest = hashlib.sha256(head)
    for _ in range(layers * LAYER_BYTES >> 20):
        digest.update(bytes(1 << 20))
    return announcement(
        b"",
        adapter_id="long",
        base_model_hash=wide_base(layers).base_model_hash,
        rank=_RANK,
        target_modules=("q_proj",),
        checksum=digest.hexdigest(),
    )
