"""A weights file on its way in: what arrived is kept when the rest does not, and the next attempt goes on there."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from shared.store.port import DigestMismatch

_BUFFER_BYTES = 1 << 20

Fetch = Callable[[int], AsyncIterator[bytes]]
"""The bytes of an object from a place on."""


async def complete(path: Path, digest: str, fetch: Fetch, limit_bytes: int) -> int:
    """Bring the file at `path` to its end, from wherever it stands, and return its size.

    Raises DigestMismatch (also for more than `limit_bytes`), OSError, or what `fetch` raises; the file is as
    long as it came then.
    """
    try:
        return await _go_on(path, digest, fetch, limit_bytes)
    except _OwnHalfDoubtful:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return await _go_on(path, digest, fetch, limit_bytes)


class _OwnHalfDoubtful(Exception):
    """The digest is wrong, and part of the bytes lay on this disk since an earlier attempt: a machine that lost
    power may have damaged them, so the store is not to blame yet."""


async def _go_on(path: Path, digest: str, fetch: Fetch, limit_bytes: int) -> int:
    half = _HalfFile(path)
    try:
        begun_bytes = await asyncio.to_thread(half.open, limit_bytes)
        async with _closed_after(fetch(begun_bytes)) as chunks:
            async for chunk in chunks:
                if half.size_bytes + len(chunk) > limit_bytes:
                    raise DigestMismatch(f"the object of {digest} is larger than the {limit_bytes} bytes on record")
                await asyncio.to_thread(half.append, chunk)
        await asyncio.to_thread(half.flush)
    finally:
        half.close()
    if (found := half.digest) == digest:
        return half.size_bytes
    if begun_bytes:
        raise _OwnHalfDoubtful
    raise DigestMismatch(f"the object of {digest} has the SHA-256 {found}")


class _HalfFile:
    """Blocking. `close` is safe, and soon done, while another thread still runs a cancelled caller's last call."""

    def __init__(self, path: Path) -> None:
        self.size_bytes = 0
        self._path = path
        self._hash = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._closed = False
        self._turn = threading.Lock()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def open(self, limit_bytes: int) -> int:
        """Take up what is there, unless it is more than there should be in the end; returns how much it is."""
        size_bytes = self._path.stat().st_size if self._path.exists() else 0
        if 0 < size_bytes <= limit_bytes:
            with self._path.open("rb") as before:
                self._hash = hashlib.file_digest(before, "sha256")
                self.size_bytes = before.tell()
        with self._turn:
            if not self._closed:
                self._file = self._path.open("ab" if self.size_bytes else "wb", buffering=_BUFFER_BYTES)
        return self.size_bytes

    def append(self, chunk: bytes) -> None:
        with self._turn:
            if self._file is not None:
                self._file.write(chunk)
                self._hash.update(chunk)
                self.size_bytes += len(chunk)

    def flush(self) -> None:
        with self._turn:
            if self._file is not None:
                self._file.flush()

    def close(self) -> None:
        with self._turn:
            file, self._file, self._closed = self._file, None, True
        if file is not None:
            with contextlib.suppress(OSError):  # whoever wants the whole file has flushed it
                file.close()


@asynccontextmanager
async def _closed_after(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """A read that is given up half-way still has its file or connection open."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
