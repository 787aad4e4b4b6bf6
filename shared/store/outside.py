"""A local file that is to become an object, for a store that has to copy it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

from shared.store.port import StoreUnavailable

_CHUNK_BYTES = 1 << 20


@asynccontextmanager
async def chunks(file: Path) -> AsyncIterator[AsyncIterator[bytes]]:
    """What is in it; it is closed with the context, however far it was read. Raises StoreUnavailable."""
    try:
        with file.open("rb", buffering=0) as opened:
            yield _read(opened)
    except OSError as error:
        raise _unavailable(file, error) from error


async def _read(opened: FileIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(opened.read, _CHUNK_BYTES):
        yield chunk


async def forget(file: Path) -> None:
    """Raises StoreUnavailable."""
    try:
        await asyncio.to_thread(file.unlink, missing_ok=True)
    except OSError as error:
        raise _unavailable(file, error) from error


def _unavailable(file: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{file.name} cannot be taken into the store: {error}")
