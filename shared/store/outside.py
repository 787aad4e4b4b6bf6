"""A local file that is to become an object, for a store that has to copy it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from shared.store.port import StoreUnavailable

_CHUNK_BYTES = 1 << 20


async def chunks(file: Path) -> AsyncIterator[bytes]:
    """Raises StoreUnavailable."""
    try:
        opened = await asyncio.to_thread(file.open, "rb", buffering=0)
        try:
            while chunk := await asyncio.to_thread(opened.read, _CHUNK_BYTES):
                yield chunk
        finally:
            opened.close()
    except OSError as error:
        raise _unavailable(file, error) from error


async def forget(file: Path) -> None:
    """Raises StoreUnavailable."""
    try:
        await asyncio.to_thread(file.unlink, missing_ok=True)
    except OSError as error:
        raise _unavailable(file, error) from error


def _unavailable(file: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{file.name} cannot be taken into the store: {error}")
