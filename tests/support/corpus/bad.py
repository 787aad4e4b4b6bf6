"""One bad adapter: how it is made, and what the registry must say of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save

from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord
from tests.support.adapter_files import BASE, Recipe, announcement, peft_config, tensors_of

VOCABULARY_SIZE = 32
CORPUS_BASE: BaseModelRecord = msgspec.structs.replace(
    BASE,
    base_model_hash=hashlib.sha256(b"base of the corpus").hexdigest(),
    name="corpus-base",
    vocabulary_size=VOCABULARY_SIZE,
)
LARGEST_FILE_BYTES = 1 << 16

Fault = tuple[str, str]
"""(code, field)"""


class Bad(msgspec.Struct, frozen=True, kw_only=True):
    """`faults` is all that is wrong. `file` None: what the recipe makes, with `tensors` added or replaced and those in
    `without` left out. `config` changes adapter_config.json, which else agrees; text takes its place. `said` changes
    the announcement after the checksum of the file that it names was taken, and `spoil` what lies in the folder."""

    faults: frozenset[Fault]
    recipe: Recipe = Recipe()
    tensors: Mapping[str, np.ndarray[Any, Any]] = {}
    without: tuple[str, ...] = ()
    file: bytes | None = None
    config: Mapping[str, Any] | bytes = {}
    said: Mapping[str, Any] = {}
    spoil: Callable[[Path], object] | None = None

    def lay(self, folder: Path) -> AdapterRegistered:
        """Write the PEFT folder, and return the announcement for it."""
        folder.mkdir(parents=True)
        said: dict[str, Any] = {
            "adapter_id": folder.name,
            "base_model_hash": CORPUS_BASE.base_model_hash,
            "rank": self.recipe.rank,
            "target_modules": self.recipe.targets,
            "rank_pattern": self.recipe.rank_pattern,
            "weights_uri": folder.as_uri(),
        }
        content = self._content()
        announced = announcement(content, **{**said, **self.said})
        config = self.config if isinstance(self.config, bytes) else peft_config(announced, **self.config)
        (folder / "adapter_model.safetensors").write_bytes(content)
        (folder / "adapter_config.json").write_bytes(config)
        if self.spoil is not None:
            self.spoil(folder)
        return announced

    def _content(self) -> bytes:
        if self.file is not None:
            return self.file
        tensors = {**tensors_of(self.recipe), **self.tensors}
        return save({name: one for name, one in tensors.items() if name not in self.without}, {"format": "pt"})


def faults(*found: Fault) -> frozenset[Fault]:
    return frozenset(found)


def each(code: str, fields: Iterable[str]) -> list[Fault]:
    """The same fault of several fields."""
    return [(code, field) for field in fields]
