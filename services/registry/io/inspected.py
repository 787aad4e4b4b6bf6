"""What was learnt of uploads as they came: whoever verifies one need not read it again."""

from __future__ import annotations

import msgspec

from services.registry.core.files.verify import FileFacts
from services.registry.io.drafts import Draft
from shared.store.port import ObjectStore

UPLOADS_FOLDER = "uploads"
_MOST = 64
_LONGEST_HEADER_BYTES = 1 << 18
"""What is kept of all of them stays within some 10 MB; an adapter of a 7B model has a header of 60 kB."""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    facts: FileFacts
    version: str


class Inspected:
    """Of the last few and for this process only: of all others the bytes are read, as after a restart.

    That they are still the same is known by three things: nobody else wrote to the file of the draft until the store
    had it, the store refuses bytes with another SHA-256 if it copies them, and the object has changed no more since.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen: dict[str, _Seen] = {}

    async def note(self, digest: str, draft: Draft) -> None:
        """Of a draft that the store has taken in, and that is still open. Raises StoreUnavailable."""
        facts, version = draft.facts(), await self._store.version(upload_key(digest))
        if not version or not _is_short(facts) or not draft.is_as_written():
            return  # a store that names no versions could not tell
        self._seen.pop(digest, None)
        self._seen[digest] = _Seen(facts=facts, version=version)
        if len(self._seen) > _MOST:
            self._seen.pop(next(iter(self._seen)))

    async def facts(self, digest: str) -> FileFacts | None:
        """None if its bytes have to be read. Raises StoreUnavailable."""
        seen = self._seen.get(digest)
        if seen is None or await self._store.version(upload_key(digest)) != seen.version:
            self._seen.pop(digest, None)
            return None
        return seen.facts


def upload_key(digest: str) -> str:
    """Where an uploaded file waits for the announcement that names it."""
    return f"{UPLOADS_FOLDER}/{digest}"


def _is_short(facts: FileFacts) -> bool:
    tensors = facts.header.tensors if facts.header is not None else ()
    return bool(tensors) and tensors[0].begin <= _LONGEST_HEADER_BYTES
