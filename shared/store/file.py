"""The object store in a folder: what a laptop and a single machine use."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from shared.store import outside
from shared.store.file_incoming import CHUNK_BYTES, Incoming, place_for_good, remove_old
from shared.store.opening import opened
from shared.store.port import Listed, ObjectMissing, StoreUnavailable, checked_key

Given = ParamSpec("Given")
T = TypeVar("T")
_SYNCS = 16


class FileStore:
    """Objects as files below `root`, which is created with the first of them.

    An object is written beside its place and moved there once its digest is right and its bytes are on the
    disk, so a reader, or a machine that lost power, sees the whole object or none. Files are read and
    written off the event loop, a chunk at a time.
    """

    most_taken_bytes = 1 << 20
    """Larger ones become objects without a copy."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / ".incoming"
        # Syncs take seconds on a busy disk: none of them may keep short work of others waiting for a thread.
        self._syncs = ThreadPoolExecutor(_SYNCS, thread_name_prefix="store-sync")

    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """See ObjectStore. What `chunks` raises passes through, and nothing is visible then."""
        place = self._place(key)
        incoming = Incoming(self._incoming / secrets.token_hex(16))
        try:
            await asyncio.to_thread(incoming.open)
            async for chunk in chunks:
                await asyncio.to_thread(incoming.write, chunk)
            return await self._sync(incoming.finish, place, digest)
        finally:
            incoming.discard()

    async def adopt(self, key: str, file: Path, digest: str) -> str | None:
        """See ObjectStore. A file on the store's own file system becomes the object itself; of any other the bytes
        are copied. Whoever is cancelled meanwhile waits until that is decided."""
        place = self._place(key)
        taking_in = self._sync(_taken_in, file, place)
        try:
            is_in = await asyncio.shield(taking_in)
        finally:
            await asyncio.wait([taking_in])
        if not is_in:
            async with outside.chunks(file) as chunks:
                await self.put(key, chunks, digest)
            await outside.forget(file)
        return await self.version(key)

    async def take(self, key: str, content: bytearray, digest: str) -> str | None:
        """See ObjectStore."""
        await self.put(key, _only(content), digest)
        return await self.version(key)

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """See ObjectStore. A store whose folder is gone is unavailable: its objects are not known missing."""
        file = await opened(partial(self._open, key, start))
        try:
            while chunk := await asyncio.to_thread(_read_chunk, file, key):
                yield chunk
        finally:
            file.close()

    async def exists(self, key: str) -> bool:
        """See ObjectStore."""
        try:
            return await asyncio.to_thread(self._place(key).is_file)
        except OSError as error:
            raise StoreUnavailable(f"object {key} cannot be looked at: {error}") from error

    async def version(self, key: str) -> str | None:
        """See ObjectStore."""
        try:
            return await asyncio.to_thread(_version, self._place(key))
        except OSError as error:
            raise StoreUnavailable(f"object {key} cannot be looked at: {error}") from error

    async def delete(self, key: str) -> None:
        """Raises StoreUnavailable; the object is still there then."""
        try:
            await asyncio.to_thread(self._place(key).unlink, missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"object {key} cannot be deleted: {error}") from error

    async def listed(self, folder: str, beginning: str = "") -> list[Listed]:
        """See ObjectStore. A folder that nothing was put into yet is empty."""
        try:
            return await asyncio.to_thread(_listed, self._place(folder), folder, beginning)
        except OSError as error:
            raise StoreUnavailable(f"the store's folder {folder} cannot be read: {error}") from error

    async def prune(self, folder: str, before_s: float) -> int:
        """See ObjectStore. It is one place for all folders."""
        try:
            return await asyncio.to_thread(remove_old, self._incoming, before_s)
        except OSError as error:
            raise StoreUnavailable(f"what was left behind in the store cannot be removed: {error}") from error

    def _sync(self, work: Callable[Given, T], *given: Given.args, **more: Given.kwargs) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._syncs, partial(work, *given, **more))

    def _place(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _open(self, key: str, start: int) -> BinaryIO:
        place = self._place(key)
        try:
            file = place.open("rb")
            file.seek(start)
            return file
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._root.is_dir():
                raise ObjectMissing(f"there is no object {key}") from error
            raise StoreUnavailable(f"object {key} cannot be read: {error}") from error


async def _only(content: bytearray) -> AsyncIterator[bytes]:
    yield bytes(content)


def _taken_in(file: Path, place: Path) -> bool:
    """Whether it could be, which a file on another file system cannot."""
    try:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
        place_for_good(file, place)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise StoreUnavailable(f"the store cannot take in {file.name}: {error}") from error
    return True


def _version(place: Path) -> str | None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return f"{found.st_dev}-{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _listed(place: Path, folder: str, beginning: str) -> list[Listed]:
    found = []
    for file in sorted(place.iterdir()) if place.is_dir() else []:
        if file.name.startswith(beginning) and file.is_file():
            with contextlib.suppress(FileNotFoundError):  # deleted since
                found.append(_looked_at(file, f"{folder}/{file.name}"))
    return found


def _looked_at(file: Path, key: str) -> Listed:
    found = file.stat()
    return Listed(key=key, size_bytes=found.st_size, modified_at_s=found.st_mtime)


def _read_chunk(file: BinaryIO, key: str) -> bytes:
    try:
        return file.read(CHUNK_BYTES)
    except OSError as error:
        raise StoreUnavailable(f"object {key} cannot be read: {error}") from error
