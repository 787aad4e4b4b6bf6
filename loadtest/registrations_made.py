"""Any number of adapters with bytes of their own, from one: another last value makes another file."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MOST = 1 << 14
_CHUNK_BYTES = 1 << 20


class Mould:
    """`first` is a PEFT folder in bfloat16, whose last two bytes are those of a value."""

    def __init__(self, first: Path) -> None:
        self._first = first
        self._body = memoryview((first / WEIGHTS).read_bytes())[:-2]
        self._digest = hashlib.sha256(self._body)

    @property
    def size_bytes(self) -> int:
        return len(self._body) + 2

    def file(self, number: int) -> tuple[str, partial[Iterator[bytes]]]:
        """The SHA-256 and the bytes of one; numbers are below MOST."""
        digest = self._digest.copy()
        digest.update(_last_value(number))
        return digest.hexdigest(), partial(self._chunks, number)

    def fill(self, folder: Path, numbers: range) -> list[Path]:
        """A PEFT folder for each number, on the disk by the end: nothing of it is left to be written while others are
        timed."""
        made = [folder / f"a{number:05d}" for number in numbers]
        for number, one in zip(numbers, made, strict=True):
            one.mkdir(parents=True)
            shutil.copy(self._first / CONFIG, one)
            with (one / WEIGHTS).open("wb") as file:
                file.writelines(self._chunks(number))
        os.sync()
        return made

    def announcements(self, folder: Path, numbers: range, same: Mapping[str, Any]) -> bytes:
        """JSON lines for folders that were filled where the registry can read them."""
        config = msgspec.json.decode((self._first / CONFIG).read_bytes())
        terms = {"rank": config["r"], "alpha": config["lora_alpha"], "target_modules": config["target_modules"]}
        lines = []
        for number in numbers:
            place = folder / f"a{number:05d}"
            one = {"adapter_id": f"{folder.name}-{place.name}", "weights_uri": place.as_uri()}
            lines.append({**same, **terms, **one, "version": "1", "checksum": self.file(number)[0]})
        return b"\n".join(map(msgspec.json.encode, lines))

    def _chunks(self, number: int) -> Iterator[bytes]:
        for at in range(0, len(self._body), _CHUNK_BYTES):
            yield bytes(self._body[at : at + _CHUNK_BYTES])
        yield _last_value(number)


def _last_value(number: int) -> bytes:
    """In bfloat16: never infinite, and another one for every number below MOST."""
    return number.to_bytes(2, "little")
