"""Weights files that a pipeline sends instead of naming a folder that the registry can read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from services.registry.core.aliases import Denied
from services.registry.core.sources import UPLOAD_SCHEME
from services.registry.io.weights import upload_key
from shared.messages.identity import is_digest
from shared.store.port import DigestMismatch, ObjectStore


class Uploads:
    def __init__(self, store: ObjectStore, largest_file_bytes: int) -> None:
        self.largest_file_bytes = largest_file_bytes
        self._store = store

    async def receive(self, digest: str, chunks: AsyncIterator[bytes]) -> str | Denied:
        """The `weights_uri` that names these bytes. Raises StoreUnavailable, and what `chunks` raises;
        nothing is kept then."""
        if not is_digest(digest):
            message = "An upload is named by its SHA-256 as 64 characters of 0-9 a-f."
            return Denied(kind="invalid", code="checksum_invalid", message=message, field="sha256")
        try:
            await self._store.put(upload_key(digest), chunks, digest)
        except DigestMismatch as error:
            return Denied(kind="invalid", code="checksum_mismatch", message=f"{error}.", field="sha256")
        return f"{UPLOAD_SCHEME}:{digest}"
