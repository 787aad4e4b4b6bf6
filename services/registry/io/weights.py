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


class Source(Protocol):
    """One weights file, readable from the beginning as often as needed."""

    @property
    def config(self) -> bytes | None:
        """The adapter_config.json that belongs to it."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable, or what an ObjectStore raises: ObjectMissing for what is there no more."""


class Weights(Source, Protocol):
    """One that can go into the store, too."""

    async def keep(self, key: str, digest: str) -> None:
        """As the object under this key, if this is its SHA-256. Raises as `chunks`, and DigestMismatch."""


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
        source = sources.locate(uri, self._prefixes)
        if isinstance(source, Defect):
            return source
        if isinstance(source, UploadSource):
            return await self._open_upload(source.digest)
        weights = await self._open(source)
        return weights if isinstance(weights, Defect) else _Copied(weights, self._store)

    async def _open(self, source: PathSource | ObjectSource) -> Source | Defect:
        if isinstance(source, PathSource):
            return await asyncio.to_thread(weights_files.open_path, source)
        return await weights_objects.open_object(self._buckets[source.bucket], source.key)

    async def _open_upload(self, digest: str) -> Weights | Defect:
        upload = _Upload(self._store, digest)
        return upload if await upload.exists() else sources.missing_fault(f"An upload with the SHA-256 {digest}")


class _Copied:
    """Weights of which the first reading is remembered if they are small: they are then read only once."""

    def __init__(self, weights: Source, store: ObjectStore) -> None:
        self.config = weights.config
        self._weights = weights
        self._store = store
        self._read: list[bytes] | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """As those of the weights."""
        if self._read is not None:
            for chunk in self._read:
                yield chunk
            return
        read: list[bytes] = []
        size_bytes = 0
        async for chunk in self._weights.chunks():
            size_bytes += len(chunk)
            read = [*read, chunk] if size_bytes <= SMALL_BYTES else []
            yield chunk
        if size_bytes <= SMALL_BYTES:
            self._read = read

    async def keep(self, key: str, digest: str) -> None:
        """As Weights says."""
        await self._store.put(key, self.chunks(), digest)


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

    async def keep(self, key: str, digest: str) -> None:
        """They may have been moved there already, for another adapter with the same bytes."""
        try:
            await self._store.move(self._waiting, key, digest)
        except ObjectMissing:
            if not await self._store.exists(key):
                raise
