"""What a folder as the store takes when nothing else is asked of anybody: the bound of every batch."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from shared.store.file import FileStore
from shared.store.port import weights_key


def store_alone(files: Sequence[bytes], root: Path, at_once: Sequence[int]) -> dict[int, float]:
    """Files a second that the store takes, so many at once."""
    return {turns: asyncio.run(_put_all(FileStore(root / str(turns)), files, turns)) for turns in at_once}


async def _put_all(store: FileStore, files: Sequence[bytes], at_once: int) -> float:
    turns = asyncio.Semaphore(at_once)

    async def put(file: bytes) -> None:
        async with turns:
            digest = hashlib.sha256(file).hexdigest()
            await store.put(weights_key(digest), _whole(file), digest)

    began_s = time.monotonic()
    await asyncio.gather(*map(put, files))
    return len(files) / (time.monotonic() - began_s)


async def _whole(file: bytes) -> AsyncIterator[bytes]:
    yield file
