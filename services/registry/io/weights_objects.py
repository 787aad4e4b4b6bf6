"""Weights files below the bucket prefixes that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from services.registry.core.defects import quoted
from services.registry.core.files import sources
from services.registry.core.files.peft_config import CONFIG_NAME, LARGEST_CONFIG_BYTES
from services.registry.io.source_unavailable import SourceUnavailable
from shared.messages.adapters import Defect
from shared.store.port import ObjectMissing, ObjectStore, StoreUnavailable

_PICKLE_NAME = "adapter_model.bin"


class _Object:
    def __init__(self, bucket: ObjectStore, key: str, config: bytes | None) -> None:
        self._bucket = bucket
        self._key = key
        self.config = config

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable, ObjectMissing."""
        try:
            async with aclosing(self._bucket.read(self._key)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk
        except StoreUnavailable as error:
            raise _unavailable(error) from error


async def open_object(bucket: ObjectStore, key: str) -> _Object | Defect:
    """The object under a key that ends as a file does, else the weights in the folder of that name.

    Raises SourceUnavailable.
    """
    folder, _, name = key.rpartition("/")
    if not name.endswith(".safetensors"):
        folder, name = key, sources.WEIGHTS_NAME
    try:
        if await bucket.exists(_below(folder, name)):
            return _Object(bucket, _below(folder, name), await _config(bucket, _below(folder, CONFIG_NAME)))
        pickled = sources.pickle_fault(_PICKLE_NAME) if await bucket.exists(_below(folder, _PICKLE_NAME)) else None
        return pickled or sources.missing_fault(f"The object in weights_uri, {quoted(_below(folder, name))},")
    except StoreUnavailable as error:
        raise _unavailable(error) from error


async def _config(bucket: ObjectStore, key: str) -> bytes | None:
    """As much of it as shows that it is too long."""
    text = b""
    try:
        async with aclosing(bucket.read(key)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                text += chunk
                if len(text) > LARGEST_CONFIG_BYTES:
                    break
    except ObjectMissing:
        return None
    return text


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _unavailable(error: StoreUnavailable) -> SourceUnavailable:
    return SourceUnavailable(f"the bucket does not answer: {error}")
