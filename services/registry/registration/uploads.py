"""Weights files that a pipeline sends instead of naming a folder that the registry can read.

What has arrived is in the object store, a part at a time, before more is read: an upload that broke off, or whose
registry died, goes on from there, at this registry or at another one on the same store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable

import msgspec

from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.parts import FOLDER, Part, beginning, chain, chain_to, part_of, reach
from services.registry.core.files.sources import UPLOAD_SCHEME
from services.registry.io.weights import UPLOADS_FOLDER, upload_key
from shared.messages.identity import is_digest
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import DigestMismatch, ObjectMissing, ObjectStore, StoreUnavailable, weights_key

PART_BYTES = 4 << 20
"""All of an upload that is held in memory, and the most that has to be sent twice."""

_log = get_logger(__name__)


class UploadPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Parts are forgotten `keep_parts_s` after the last of them came, a whole file that nobody announced after
    `keep_uploads_s`."""

    largest_file_bytes: int
    keep_parts_s: float
    keep_uploads_s: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far an upload has come. `weights_uri` is None until it is whole."""

    offset_bytes: int
    weights_uri: str | None = None


class Uploads:
    """Everything here may raise StoreUnavailable; what had arrived is still there then."""

    def __init__(self, store: ObjectStore, clock: Clock, policy: UploadPolicy) -> None:
        self.policy = policy
        self._store = store
        self._clock = clock

    async def standing(self, digest: str) -> Standing | Denied:
        """Where an upload of this file is to go on."""
        if not is_digest(digest):
            return _no_digest()
        if await self._is_whole(digest):
            return Standing(offset_bytes=0, weights_uri=_uri(digest))
        return Standing(offset_bytes=reach(chain(await self._parts(digest))))

    async def receive(self, digest: str, start: int, chunks: AsyncIterator[bytes]) -> str | Denied:
        """Take a file from byte `start` to its end: the `weights_uri` that names it. What `chunks` raises passes
        through, and what came before is kept. Bytes that have another SHA-256 are forgotten, all of them."""
        if not is_digest(digest):
            return _no_digest()
        parts = await self._parts(digest) if start else ()
        before = chain_to(parts, start)
        if before is None:
            return _elsewhere(reach(chain(parts)))
        arrival = _Arrival(self._store, digest, start)
        rest = await arrival.take(chunks)
        if not before and not arrival.parts:
            return await self._keep(digest, _whole(rest))
        await arrival.store(rest)
        outcome = await self._join(digest, (*before, *arrival.parts))
        await self.discard(digest)
        return outcome

    async def discard(self, digest: str) -> None:
        """Forget what has come of a file that is not whole."""
        for part in await self._parts(digest):
            await self._store.delete(part.key)

    async def prune(self) -> None:
        """Forget what nobody came back for. A store that is away is asked again the next time."""
        try:
            await self._prune()
        except StoreUnavailable as error:
            _log.warning("old uploads cannot be forgotten now", error=error)

    async def _prune(self) -> None:
        now_s = self._clock.wall_s()
        found = await self._store.listed(FOLDER)
        newest: dict[str, float] = {}
        for one in found:
            newest[_digest(one.key)] = max(one.modified_at_s, newest.get(_digest(one.key), 0.0))
        old = [one.key for one in found if newest[_digest(one.key)] < now_s - self.policy.keep_parts_s]
        whole = await self._store.listed(UPLOADS_FOLDER)
        old += [one.key for one in whole if one.modified_at_s < now_s - self.policy.keep_uploads_s]
        for key in old:
            await self._store.delete(key)
        if old:
            _log.info("uploads were forgotten that nobody came back for", objects=len(old))

    async def _join(self, digest: str, parts: tuple[Part, ...]) -> str | Denied:
        """Another upload of the same file may have ended meanwhile, and have taken the parts away."""
        try:
            return await self._keep(digest, self._bytes_of(parts))
        except ObjectMissing:
            return _uri(digest) if await self._is_whole(digest) else _elsewhere(0)

    async def _keep(self, digest: str, chunks: AsyncIterator[bytes]) -> str | Denied:
        try:
            await self._store.put(upload_key(digest), chunks, digest)
        except DigestMismatch as error:
            return Denied(kind="invalid", code="checksum_mismatch", message=f"{error}.", field="sha256")
        return _uri(digest)

    async def _bytes_of(self, parts: Iterable[Part]) -> AsyncIterator[bytes]:
        for part in parts:
            async for chunk in self._store.read(part.key):
                yield chunk

    async def _parts(self, digest: str) -> tuple[Part, ...]:
        found = await self._store.listed(FOLDER, beginning(digest))
        return tuple(part for one in found if (part := part_of(one.key)) is not None)

    async def _is_whole(self, digest: str) -> bool:
        return await self._store.exists(upload_key(digest)) or await self._store.exists(weights_key(digest))


class _Arrival:
    """Bytes as they come, written away in parts; `parts` are those that are safe."""

    def __init__(self, store: ObjectStore, digest: str, start: int) -> None:
        self.parts: list[Part] = []
        self._store = store
        self._digest = digest
        self._at = start

    async def take(self, chunks: AsyncIterator[bytes]) -> bytes:
        """What is left at the end, less than a part. If `chunks` raises, that is safe, too."""
        waiting = bytearray()
        try:
            async for chunk in chunks:
                waiting += chunk
                while len(waiting) >= PART_BYTES:
                    await self.store(bytes(waiting[:PART_BYTES]))
                    del waiting[:PART_BYTES]
        except StoreUnavailable:
            raise
        except Exception:
            await self.store(bytes(waiting))
            raise
        return bytes(waiting)

    async def store(self, piece: bytes) -> None:
        if not piece:
            return
        part = Part(digest=self._digest, start=self._at, end=self._at + len(piece))
        own_digest = await asyncio.to_thread(lambda: hashlib.sha256(piece).hexdigest())
        await self._store.put(part.key, _whole(piece), own_digest)
        self.parts.append(part)
        self._at = part.end


async def _whole(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


def _digest(key: str) -> str:
    return key.removeprefix(f"{FOLDER}/").partition(".")[0]


def _uri(digest: str) -> str:
    return f"{UPLOAD_SCHEME}:{digest}"


def _no_digest() -> Denied:
    message = "An upload is named by its SHA-256 as 64 characters of 0-9 a-f."
    return Denied(kind="invalid", code="checksum_invalid", message=message, field="sha256")


def _elsewhere(offset: int) -> Denied:
    message = f"The upload cannot go on there: {offset} bytes of it are here."
    return Denied(kind="conflict", code="upload_offset", message=message, field="upload-offset")
