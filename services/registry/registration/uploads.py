"""Weights files that a pipeline sends instead of naming a folder that the registry can read.

What has arrived is in a file that grows, a part at a time, before more is read: an upload that broke off, or whose
registry died, goes on from there, at this registry or at another one with the same folder for such files. Once it is
whole and has its SHA-256, the store takes the file in at its final place, and what was learnt of its bytes as they came
is kept for whoever verifies it. What a store takes in one request stays in memory instead, while there is room, and is
in such a file only if it breaks off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from services.registry.core.deployment.aliases import Denied
from services.registry.core.files.sources import UPLOAD_SCHEME
from services.registry.io import wrong_bytes
from services.registry.io.database import DatabaseUnavailable
from services.registry.io.drafts import Draft, Drafts
from services.registry.io.inspected import Inspected
from services.registry.io.inspection import Inspection
from services.registry.registration.arriving import Memory, Share, fill
from services.registry.registration.unclaimed import Unclaimed
from shared.messages.identity import is_digest
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import WEIGHTS_FOLDER, DigestMismatch, ObjectStore, StoreUnavailable, weights_key

_HELD_BYTES = 64 << 20
"""Of all uploads that stay in memory. Those beyond go through files, from their first part on."""
_READ_BYTES = 1 << 20
_LONGEST_PUT_S = 86400.0
"""What has been on its way into the store for longer was killed."""

_OF_OLD = "uploads"
"""Where registries before decision 0032 let whole files wait."""

_log = get_logger(__name__)


class UploadPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is not whole is forgotten `keep_parts_s` after the last of it came, a whole file with which no adapter was
    verified after `keep_uploads_s`."""

    largest_file_bytes: int
    keep_parts_s: float
    keep_uploads_s: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far an upload has come. `weights_uri` is None until it is whole."""

    offset_bytes: int
    weights_uri: str | None = None


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """What uploads go through: drafts, what is learnt of them, and the store."""

    store: ObjectStore
    inspected: Inspected
    drafts: Drafts


class Uploads:
    """A part. Everything here may raise StoreUnavailable, DatabaseUnavailable; what had arrived is still there then."""

    def __init__(self, incoming: Incoming, unclaimed: Unclaimed, clock: Clock, policy: UploadPolicy) -> None:
        self.policy = policy
        self._store = incoming.store
        self._inspected = incoming.inspected
        self._drafts = incoming.drafts
        self._memory = Memory(_HELD_BYTES, incoming.store.most_taken_bytes)
        self._unclaimed = unclaimed
        self._clock = clock

    async def start(self) -> None:
        """Whatever is to be uploaded comes through `receive`."""

    async def stop(self) -> None:
        await self._unclaimed.stop()

    async def standing(self, digest: str) -> Standing | Denied:
        """Where an upload of this file is to go on."""
        if not is_digest(digest):
            return _no_digest()
        if await self._store.exists(weights_key(digest)):
            return Standing(offset_bytes=0, weights_uri=_uri(digest))
        return Standing(offset_bytes=await asyncio.to_thread(self._drafts.reach, digest))

    async def receive(self, digest: str, start: int, chunks: AsyncIterator[bytes]) -> str | Denied:
        """Take a file from byte `start` to its end: the `weights_uri` that names it. What `chunks` raises passes
        through, and what came before is kept. Bytes that have another SHA-256 are forgotten, all of them."""
        if not is_digest(digest):
            return _no_digest()
        draft = self._drafts.new(digest)
        outcome: str | Denied
        try:
            if start and not await asyncio.to_thread(draft.resume, start):
                return _elsewhere(await asyncio.to_thread(self._drafts.reach, digest))
            with self._memory.share() as share:
                outcome = await self._taken_in(digest, draft, chunks, share)
        except DigestMismatch as error:
            outcome = _another_file(error)
        finally:
            await asyncio.to_thread(draft.close)
        await self.discard(digest)
        return outcome

    async def discard(self, digest: str) -> None:
        """Forget what has come of a file that is not whole."""
        await asyncio.to_thread(self._drafts.forget, digest)

    async def prune(self) -> None:
        """Forget what nobody came back for. A store or a database that is away is asked again the next time."""
        try:
            await self._prune()
        except (StoreUnavailable, DatabaseUnavailable) as error:
            _log.warning("old uploads cannot be forgotten now", error=error)

    async def _prune(self) -> None:
        now_s = self._clock.wall_s()
        drafts = await asyncio.to_thread(self._drafts.prune, now_s - self.policy.keep_parts_s)
        whole = await self._unclaimed.prune(self.policy.keep_uploads_s) + await self._prune_of_old(now_s)
        if drafts or whole:
            _log.info("uploads were forgotten that nobody came back for", not_whole=drafts, whole=whole)
        folders = (_OF_OLD, WEIGHTS_FOLDER)
        if killed := sum([await self._store.prune(folder, now_s - _LONGEST_PUT_S) for folder in folders]):
            _log.info("what was killed on its way into the store was removed", count=killed)

    async def _prune_of_old(self, now_s: float) -> int:
        whole = await self._store.listed(_OF_OLD)
        old = [one.key for one in whole if one.modified_at_s < now_s - self.policy.keep_uploads_s]
        for key in old:
            await self._store.delete(key)
        return len(old)

    async def _taken_in(self, digest: str, draft: Draft, chunks: AsyncIterator[bytes], share: Share) -> str:
        """If the store or the database is away, what came is in the draft afterwards."""
        content = bytearray()
        try:
            async with self._unclaimed.noting(digest) as noted:
                content = await fill(draft, chunks, share)
                await noted
            return await (self._keep(digest, draft) if draft.size_bytes else self._take(digest, content))
        except (StoreUnavailable, DatabaseUnavailable):
            await asyncio.to_thread(draft.append, content)
            raise

    async def _keep(self, digest: str, draft: Draft) -> str:
        _check(draft.digest, digest)
        version = await self._store.adopt(weights_key(digest), draft.path, digest)
        if not draft.is_as_written():  # asked last: whoever writes to it from now on makes it another version
            await wrong_bytes.remove(self._store, weights_key(digest), version)
            raise DigestMismatch("somebody else wrote to it before the store had it")
        self._inspected.note(draft.facts(), version)
        return _uri(digest)

    async def _take(self, digest: str, content: bytearray) -> str:
        reading = await asyncio.to_thread(_read, content)
        _check(reading.digest, digest)
        version = await self._store.take(weights_key(digest), content, digest)
        self._inspected.note(reading.facts(), version)
        return _uri(digest)


def _check(found: str, digest: str) -> None:
    if found != digest:
        raise DigestMismatch(f"the SHA-256 of the bytes is {found}, not {digest}")


def _read(content: bytearray) -> Inspection:
    reading = Inspection()
    with memoryview(content) as view:
        for start in range(0, len(view), _READ_BYTES):
            reading.feed(view[start : start + _READ_BYTES])
    return reading


def _uri(digest: str) -> str:
    return f"{UPLOAD_SCHEME}:{digest}"


def _no_digest() -> Denied:
    message = "An upload is named by its SHA-256 as 64 characters of 0-9 a-f."
    return Denied(kind="invalid", code="checksum_invalid", message=message, field="sha256")


def _another_file(error: DigestMismatch) -> Denied:
    message = f"The upload is another file: {error}."
    return Denied(kind="invalid", code="checksum_mismatch", message=message, field="sha256")


def _elsewhere(offset: int) -> Denied:
    message = f"The upload cannot go on there: {offset} bytes of it are here."
    return Denied(kind="conflict", code="upload_offset", message=message, field="upload-offset")
