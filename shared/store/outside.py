"""A local file that is to become an object, for a store that has to copy it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import FileIO
from pathlib import Path

from shared.store.port import StoreUnavailable

_CHUNK_BYTES = 1 << 20


@contextmanager
def opened(file: Path) -> Iterator[FileIO]:
    """To be read within the context. Raises StoreUnavailable, also for an OSError within it."""
    try:
        with file.open("rb", buffering=0) as found:
            yield found
    except OSError as error:
        raise _unavailable(file, error) from error


@asynccontextmanager
async def chunks(file: Path) -> AsyncIterator[AsyncIterator[bytes]]:
    """What is in it; it is closed with the context, however far it was read. Raises StoreUnavailable."""
    with opened(file) as found:
        yield _read(found)


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
