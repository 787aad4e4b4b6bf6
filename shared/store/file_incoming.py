"""A file on its way into a store in a folder, and how one gets to its place for good."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from shared.store.port import DigestMismatch, StoreUnavailable

CHUNK_BYTES = 1 << 20


class Incoming:
    """A file on its way into the store. `discard` is safe while a cancelled caller's last call still runs in its
    thread: of `open` by a lock of this class, of the others by the buffered writer's own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._file: BinaryIO = io.BytesIO()
        self._discarded = self._placed = False
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
            place_for_good(self._path, place)
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be written: {error}") from error
        self._placed = True
        return size_bytes

    def discard(self) -> None:
        """Leave nothing behind. After `finish` there is nothing, and this does nothing."""
        if self._placed:
            return
        with self._opening:
            self._discarded = True
        # A full disk fails the flush of the buffer as well, and what was buffered is not wanted.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):  # why the file could not be written is what its writer wants to know
            self._path.unlink(missing_ok=True)


def place_for_good(file: Path, place: Path) -> None:
    """Blocking. Whole or not at all, also for a machine that loses power, if the bytes are on the disk. Raises
    OSError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    file.replace(place)
    _sync_folder(place.parent)


def remove_old(folder: Path, before_s: float) -> int:
    """Remove the files in it that nobody has written to since; how many those were. Blocking. Raises OSError.

    No name is used twice: one that has become an object meanwhile is not there, and one that is still being written
    cannot become an object any more."""
    removed = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_mtime < before_s:
                path.unlink()
                removed += 1
    return removed


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
