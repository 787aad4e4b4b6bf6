"""Opens what an announcement's `weights_uri` names: an upload, a file below a folder, or an object in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Protocol

from services.registry.core.files import sources
from services.registry.core.files.sources import ObjectSource, PathSource, Prefixes, UploadSource
from services.registry.core.records import Content
from services.registry.io import weights_files, weights_objects
from services.registry.io.inspected import Inspected, upload_key
from services.registry.io.inspection import Source, inspect
from services.registry.io.passing import Judged, NotAsWanted, Wanted, pass_into
from shared.messages.adapters import Defect
from shared.store.port import DigestMismatch, ObjectMissing, ObjectStore, StoreUnavailable, weights_key


class Weights(Source, Protocol):
    """One that can go into the store, too."""

    async def take(self, wanted: Wanted) -> Judged:
        """Every defect of it, or its content, which is then in the store under its final key. Raises as `chunks`, and
        DigestMismatch for a file that was another one when it was read again."""


class WeightsSources:
    """`store` has the uploads, `buckets` a store for each bucket prefix that weights may come from."""

    def __init__(
        self, store: ObjectStore, inspected: Inspected, prefixes: Prefixes, buckets: Mapping[str, ObjectStore]
    ) -> None:
        self._store = store
        self._inspected = inspected
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
        upload = _Upload(self._store, self._inspected, digest)
        return upload if await upload.exists() else sources.missing_fault(f"An upload with the SHA-256 {digest}")


class _Copied:
    """Weights that lie elsewhere. A good file is read once, on its way into the store; of any other one reading it
    again says all that is wrong."""

    def __init__(self, weights: Source, store: ObjectStore) -> None:
        self.config = weights.config
        self._weights = weights
        self._store = store

    def chunks(self) -> AsyncIterator[bytes]:
        return self._weights.chunks()

    async def take(self, wanted: Wanted) -> Judged:
        """As Weights says."""
        if wanted.hopeless:
            return await self._judged(wanted)
        try:
            return await pass_into(self._store, self._weights, wanted)
        except (NotAsWanted, DigestMismatch, StoreUnavailable) as error:
            if not isinstance(found := await self._judged(wanted), Content):
                return found
            if isinstance(error, NotAsWanted):
                raise DigestMismatch("it was another file before") from error
            raise

    async def _judged(self, wanted: Wanted) -> Judged:
        return await asyncio.to_thread(wanted.judge, await inspect(self._weights, wanted.largest_file_bytes))


class _Upload:
    """Uploaded bytes. They move to their final place once an adapter with them is accepted, which may happen
    between any two readings: the same bytes may be announced under several ids."""

    config = None

    def __init__(self, store: ObjectStore, inspected: Inspected, digest: str) -> None:
        self._store = store
        self._inspected = inspected
        self._digest = digest
        self._waiting, self._final = upload_key(digest), weights_key(digest)

    async def exists(self) -> bool:
        return await self._store.exists(self._waiting) or await self._store.exists(self._final)

    async def chunks(self) -> AsyncIterator[bytes]:
        read_bytes = 0
        try:
            async with aclosing(self._store.read(self._waiting)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    read_bytes += len(chunk)
                    yield chunk
        except ObjectMissing:
            async with aclosing(self._store.read(self._final, read_bytes)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk

    async def take(self, wanted: Wanted) -> Judged:
        """As Weights says."""
        facts = await self._inspected.facts(self._digest) or await inspect(self, wanted.largest_file_bytes)
        judged = await asyncio.to_thread(wanted.judge, facts)
        if isinstance(judged, Content):
            await self._keep()
        return judged

    async def _keep(self) -> None:
        """They may have been moved there already, for another adapter with the same bytes."""
        try:
            await self._store.move(self._waiting, self._final, self._digest)
        except ObjectMissing:
            if not await self._store.exists(self._final):
                raise
