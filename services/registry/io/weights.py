"""Opens what an announcement's `weights_uri` names: an upload, a file below a folder, or an object in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from services.registry.core.files import sources
from services.registry.core.files.sources import ObjectSource, PathSource, Prefixes, UploadSource
from services.registry.io import weights_files, weights_objects
from shared.messages.adapters import Defect
from shared.store.port import ObjectMissing, ObjectStore, weights_key

UPLOADS_FOLDER = "uploads"
SMALL_BYTES = 1 << 20


class Weights(Protocol):
    """One weights file, readable from the beginning as often as needed."""

    @property
    def config(self) -> bytes | None:
        """The adapter_config.json that belongs to it."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable, or what an ObjectStore raises: ObjectMissing for what is there no more."""


def upload_key(digest: str) -> str:
    """Where an uploaded file waits for the announcement that names it."""
    return f"{UPLOADS_FOLDER}/{digest}"


class WeightsSources:
    """`store` has the uploads, `buckets` a store for each bucket prefix that weights may come from."""

    def __init__(self, store: ObjectStore, prefixes: Prefixes, buckets: Mapping[str, ObjectStore]) -> None:
        self._store = store
        self._prefixes = prefixes
        self._buckets = buckets

    async def open(self, uri: str) -> Weights | Defect:
        """Raises SourceUnavailable, StoreUnavailable."""
        weights = await self._open(uri)
        return weights if isinstance(weights, Defect) else _Remembered(weights)

    async def _open(self, uri: str) -> Weights | Defect:
        source = sources.locate(uri, self._prefixes)
        if isinstance(source, UploadSource):
            return await self._open_upload(source.digest)
        if isinstance(source, PathSource):
            return await asyncio.to_thread(weights_files.open_path, source)
        if isinstance(source, ObjectSource):
            return await weights_objects.open_object(self._buckets[source.bucket], source.key)
        return source

    async def _open_upload(self, digest: str) -> Weights | Defect:
        upload = _Upload(self._store, digest)
        return upload if await upload.exists() else sources.missing_fault(f"An upload with the SHA-256 {digest}")


class _Remembered:
    """Weights of which the first reading is kept if they are small: they are then read only once."""

    def __init__(self, weights: Weights) -> None:
        self.config = weights.config
        self._weights = weights
        self._kept: list[bytes] | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """As those of the weights."""
        if self._kept is not None:
            for chunk in self._kept:
                yield chunk
            return
        read: list[bytes] = []
        size_bytes = 0
        async for chunk in self._weights.chunks():
            size_bytes += len(chunk)
            read = [*read, chunk] if size_bytes <= SMALL_BYTES else []
            yield chunk
        if size_bytes <= SMALL_BYTES:
            self._kept = read


class _Upload:
    """Uploaded bytes. They move to their final place once an adapter with them is accepted, which may happen
    between any two readings: the same bytes may be announced under several ids."""

    config = None

    def __init__(self, store: ObjectStore, digest: str) -> None:
        self._store = store
        self._waiting, self._final = upload_key(digest), weights_key(digest)

    async def exists(self) -> bool:
        return await self._store.exists(self._waiting) or await self._store.exists(self._final)

    async def chunks(self) -> AsyncIterator[bytes]:
        read_bytes = 0
        try:
            async for chunk in self._store.read(self._waiting):
                read_bytes += len(chunk)
                yield chunk
        except ObjectMissing:
            async for chunk in self._store.read(self._final, read_bytes):
                yield chunk
