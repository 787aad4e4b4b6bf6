"""Opens what an announcement's `weights_uri` names: an upload, a file below a folder, or an object in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from services.registry.core.files import sources
from services.registry.core.files.sources import ObjectSource, PathSource, Prefixes, UploadSource
from services.registry.core.records import Content
from services.registry.io import weights_files, weights_objects, wrong_bytes
from services.registry.io.inspected import Inspected
from services.registry.io.inspection import Source, inspect
from services.registry.io.passing import Judged, NotAsWanted, Wanted, pass_into
from shared.messages.adapters import Defect
from shared.store.port import DigestMismatch, ObjectStore, StoreUnavailable, weights_key

_NOT_READ = ""
"""The SHA-256 of a file that is too large to be read."""


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
        version = await self._store.version(weights_key(digest))
        if version is None:
            return sources.missing_fault(f"An upload with the SHA-256 {digest}")
        return _Upload(self._store, self._inspected, digest, version)


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
    """Uploaded bytes, which lie at their final place already; `version` is the object's."""

    config = None

    def __init__(self, store: ObjectStore, inspected: Inspected, digest: str, version: str) -> None:
        self._store = store
        self._inspected = inspected
        self._digest = digest
        self._version = version

    def chunks(self) -> AsyncIterator[bytes]:
        return self._store.read(weights_key(self._digest))

    async def take(self, wanted: Wanted) -> Judged:
        """As Weights says. Bytes that are not what they are called leave the store."""
        facts = self._inspected.facts(self._digest, self._version) or await inspect(self, wanted.largest_file_bytes)
        judged = await asyncio.to_thread(wanted.judge, facts)
        if facts.digest not in (self._digest, _NOT_READ):
            await wrong_bytes.remove(self._store, weights_key(self._digest), self._version)
            if isinstance(judged, Content):
                raise DigestMismatch(f"the upload {self._digest} has another SHA-256")
        return judged
