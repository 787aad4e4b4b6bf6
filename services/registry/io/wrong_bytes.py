"""An object that does not have the SHA-256 of its key."""

from __future__ import annotations

from shared.store.port import ObjectStore


async def remove(store: ObjectStore, key: str, version: str | None) -> None:
    """So that the file can be uploaded again, and is not taken for what is there already. Only what was read, which
    had this version: somebody may have put the right bytes there meanwhile. Raises StoreUnavailable."""
    if await store.version(key) == version:
        await store.delete(key)
