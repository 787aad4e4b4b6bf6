"""What a folder as the store takes when nothing else is asked of anybody: the bound of every batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from shared.store.file import FileStore
from shared.store.port import weights_key

Object = tuple[str, Callable[[], Iterable[bytes]]]
"""The SHA-256 of a file and its bytes, as often as they are asked for."""


def store_alone(files: Sequence[Object], root: Path, at_once: int) -> float:
    """How long the store takes for them, so many at once: each hashed, synced and moved to its place as always."""
    return asyncio.run(_put_all(FileStore(root), files, at_once))


async def _put_all(store: FileStore, files: Sequence[Object], at_once: int) -> float:
    turns = asyncio.Semaphore(at_once)

    async def put(file: Object) -> None:
        digest, chunks = file
        async with turns:
            await store.put(weights_key(digest), _each(chunks()), digest)

    began_s = time.monotonic()
    await asyncio.gather(*map(put, files))
    return time.monotonic() - began_s


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
