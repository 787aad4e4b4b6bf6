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
LONG_BYTES = 2 * _HALF_BYTES
"""32 MiB; the header comes on top."""

WIDE_BASE: BaseModelRecord = msgspec.structs.replace(
    BASE,
    base_model_hash=hashlib.sha256(b"wide base").hexdigest(),
    name="wide-base",
    layers=1,
    modules={"q_proj": ModuleShape(in_features=_WIDTH, out_features=_WIDTH)},
)


def write_long_file(path: Path) -> AdapterRegistered:
    """The announcement for it lacks a `weights_uri`."""
    shapes = {"A": [_RANK, _WIDTH], "B": [_WIDTH, _RANK]}
    header = {
        name_of(0, "q_proj", side): {
            "dtype": "F32", "shape": shape, "data_offsets": [at * _HALF_BYTES, (at + 1) * _HALF_BYTES],
        }
        for at, (side, shape) in enumerate(shapes.items())
    }  # fmt: skip
    head = crafted(header)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + LONG_BYTES)
    digest = hashlib.sha256(head)
    for _ in range(LONG_BYTES >> 20):
        digest.update(bytes(1 << 20))
    return announcement(
        b"",
        adapter_id="long",
        base_model_hash=WIDE_BASE.base_model_hash,
        rank=_RANK,
        target_modules=("q_proj",),
        checksum=digest.hexdigest(),
    )
