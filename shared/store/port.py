"""The object store: immutable objects under keys that contain their SHA-256."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class ObjectMissing(Exception):
    """There is no object under this key."""


class StoreUnavailable(Exception):
    """The store cannot be reached or refuses; nothing was changed, safe to retry."""


class DigestMismatch(Exception):
    """The bytes do not have the SHA-256 they were announced with; nothing was stored."""


class ObjectStore(Protocol):
    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """Store the bytes and return their count. Readers see the whole object or none.
        Raises DigestMismatch, StoreUnavailable; nothing is visible then."""

    def read(self, key: str) -> AsyncIterator[bytes]:
        """The object in chunks of at most 1 MiB. Raises ObjectMissing, StoreUnavailable (also midway)."""

    async def exists(self, key: str) -> bool: ...

    async def delete(self, key: str) -> None:
        """Deleting what is not there is no error."""


def weights_key(digest: str) -> str:
    """Where the weights file with this SHA-256 lives."""
    return f"adapters/{digest}.safetensors"
