"""The object store in a folder: what a laptop and a single machine use."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from shared.store.port import DigestMismatch, Listed, ObjectMissing, StoreUnavailable, checked_key

CHUNK_BYTES = 1 << 20
_INCOMING = ".incoming"


class FileStore:
    """Objects as files below `root`, which is created with the first of them.

    An object is written beside its place and moved there once its digest is right and its bytes are on the
    disk, so a reader, or a machine that lost power, sees the whole object or none. Files are read and
    written off the event loop, a chunk at a time.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """See ObjectStore. What `chunks` raises passes through, and nothing is visible then."""
        place = self._place(key)
        incoming = _Incoming(self._root / _INCOMING / secrets.token_hex(16))
        try:
            await asyncio.to_thread(incoming.open)
            async for chunk in chunks:
                await asyncio.to_thread(incoming.write, chunk)
            return await asyncio.to_thread(incoming.finish, place, digest)
        finally:
            incoming.discard()

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """See ObjectStore. A store whose folder is gone is unavailable: its objects are not known missing."""
        file = await asyncio.to_thread(self._open, key, start)
        try:
            while chunk := await asyncio.to_thread(_read_chunk, file, key):
                yield chunk
        finally:
            file.close()

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._place(key).is_file)

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


class _Incoming:
    """A file on its way into the store. `discard` is safe while a cancelled caller's last call still runs in its
    thread: of `open` by a lock of this class, of the others by the buffered writer's own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._file: BinaryIO = io.BytesIO()
        self._discarded = False
        self._opening = threading.Lock()

    def open(self) -> None:
        with self._opening:
            if self._discarded:
                return
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb", buffering=CHUNK_BYTES)
            except OSError as error:
                raise StoreUnavailable(f"the store cannot be written: {error}") from error

    def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        try:
            self._file.write(chunk)
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be written: {error}") from error

    def finish(self, place: Path, digest: str) -> int:
        """Move the file to its place; the count of its bytes."""
        if (found := self._hash.hexdigest()) != digest:
            raise DigestMismatch(f"the SHA-256 of the bytes is {found}, not {digest}")
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            size_bytes = self._file.tell()
            self._file.close()
            place.parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(place)
            _sync_folder(place.parent)
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be written: {error}") from error
        return size_bytes

    def discard(self) -> None:
        """Leave nothing behind. After `finish` there is nothing, and this does nothing."""
        with self._opening:
            self._discarded = True
        # A full disk fails the flush of the buffer as well, and what was buffered is not wanted.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):  # why the file could not be written is what its writer wants to know
            self._path.unlink(missing_ok=True)


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


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
