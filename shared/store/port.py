"""The object store: immutable objects under keys that contain their SHA-256."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import msgspec

WEIGHTS_FOLDER = "adapters"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An object without its bytes; `modified_at_s` is in seconds since 1970, by the store's clock."""

    key: str
    size_bytes: int
    modified_at_s: float


class ObjectMissing(Exception):
    """There is no object under this key."""


class StoreUnavailable(Exception):
    """The store cannot be reached or refuses; nothing was changed, safe to retry."""


class ObjectChanged(StoreUnavailable):
    """The object was replaced while it was read: the bytes read so far and those to come belong to two
    versions. Safe to retry from the beginning."""


class DigestMismatch(Exception):
    """The bytes do not have the SHA-256 they were announced with; nothing was stored."""


class ObjectStore(Protocol):
    @property
    def most_taken_bytes(self) -> int:
        """Up to this size an object costs less if it is given by `take` than by `adopt`, and has room in memory."""

    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """Store the bytes and return their count. Readers see the whole object or none.
        Raises DigestMismatch, StoreUnavailable; nothing is visible then."""

    async def adopt(self, key: str, file: Path, digest: str) -> str | None:
        """As `put` with the bytes of a local file, which is gone afterwards; without a copy if the store can. Returns
        the `version` of what it stored. The caller has seen the digest of what it wrote there, and writes no more: not
        every store reads it once more. However this ends, the file is left alone from then on. Raises DigestMismatch,
        StoreUnavailable; the file is still there then."""

    async def take(self, key: str, content: bytearray, digest: str) -> str | None:
        """As `put` with bytes at hand, of which the caller has seen the digest: not every store looks at them once
        more. Returns the `version` of what it stored. Raises DigestMismatch, StoreUnavailable."""

    def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """The object from byte `start` on, in chunks of at most 1 MiB; nothing if it has no such byte.
        Raises ObjectMissing, StoreUnavailable, ObjectChanged (also midway); what came until then is right,
        and a read from there goes on with it."""

    async def exists(self, key: str) -> bool:
        """Raises StoreUnavailable."""

    async def version(self, key: str) -> str | None:
        """Another one after every change of the object that the store can tell from the last; None if there is none.
        Raises StoreUnavailable."""

    async def delete(self, key: str) -> None:
        """Deleting what is not there is no error. Raises StoreUnavailable."""

    async def listed(self, folder: str, beginning: str = "") -> list[Listed]:
        """The objects right below `folder` (a key) whose names begin so, in order of their keys. For folders of
        thousands, not of millions. Raises StoreUnavailable."""

    async def prune(self, folder: str, before_s: float) -> int:
        """Remove what puts into this folder left behind that were killed before then (seconds since 1970, by the
        store's clock); how many those were. No object is touched, and a put that only took so long fails as a
        whole. Raises StoreUnavailable."""


def weights_key(digest: str) -> str:
    """Where the weights file with this SHA-256 lives."""
    return f"{WEIGHTS_FOLDER}/{digest}.safetensors"


def checked_key(key: str) -> str:
    """Keys are made by us, never by customers: a wrong one is a programming error (ValueError)."""
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"{key!r} is no object key")
    return key
