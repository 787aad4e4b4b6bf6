"""Weights files on the local disk, named by their SHA-256 and nothing that a customer chose."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from shared.messages.identity import is_digest
from shared.store.port import DigestMismatch

_SUFFIX = ".safetensors"
_PARTIAL = ".part"
_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskRefused(Exception):
    """The disk is full or does not work; nothing was stored, safe to retry."""


class FileDamaged(Exception):
    """A file is gone, unreadable, or no longer has the digest that it is named after."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    size_bytes: int
    used_at_s: float
    """By the file system's clock; only good for an order."""


class DiskFiles:
    """One folder, used by one process at a time. A name exists only once all its bytes were right.

    Files are not synced: a machine that loses power may leave a damaged one, which the check before every
    read finds like any other damage.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: BinaryIO | None = None

    def open(self) -> list[StoredFile]:
        """Take the folder, remove what a crash left half-written, and list the rest, oldest use first.

        Blocking. Raises DiskRefused if the folder cannot be used or another process has it.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self._folder / ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for leftover in self._folder.glob(f"*{_PARTIAL}"):
                leftover.unlink()
            return sorted(map(_describe, self._weights()), key=lambda file: file.used_at_s)
        except OSError as error:
            self.close()
            raise DiskRefused(f"the cache folder {self._folder} cannot be taken: {error}") from error

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def path(self, digest: str) -> Path:
        """Raises ValueError for anything that is not a digest."""
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no SHA-256")
        return self._folder / (digest + _SUFFIX)

    async def write(self, digest: str, chunks: AsyncIterator[bytes], limit_bytes: int) -> int:
        """Store a file and return its size. One writer per digest at a time. A folder that was cleared away
        comes back: a replica that stays up without it would refuse every adapter that it does not hold.

        Raises DigestMismatch (also for more than `limit_bytes`), DiskRefused, or what `chunks` raises;
        nothing is stored then.
        """
        partial = self.path(digest).with_suffix(_PARTIAL)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            size_bytes = await _write_checked(partial, digest, chunks, limit_bytes)
            partial.replace(self.path(digest))
        except OSError as error:
            raise DiskRefused(_sentence(error, self._folder)) from error
        finally:
            with contextlib.suppress(OSError):  # what does not go now goes at the next start
                partial.unlink(missing_ok=True)
        return size_bytes

    async def check(self, digest: str) -> None:
        """Hash the file again. Raises FileDamaged."""
        try:
            found = await asyncio.to_thread(_hash_and_touch, self.path(digest))
        except OSError as error:
            raise FileDamaged(f"the file of {digest} cannot be read: {error}") from error
        if found != digest:
            raise FileDamaged(f"the file of {digest} has the SHA-256 {found}")

    def delete(self, digest: str) -> None:
        """Deleting what is not there is no error. Raises DiskRefused; the file may still be there then."""
        try:
            self.path(digest).unlink(missing_ok=True)
        except OSError as error:
            raise DiskRefused(f"the file of {digest} cannot be deleted: {error}") from error

    def _weights(self) -> list[Path]:
        return [path for path in self._folder.glob(f"*{_SUFFIX}") if is_digest(path.stem) and not path.is_symlink()]


def _describe(path: Path) -> StoredFile:
    stat = path.stat()
    return StoredFile(digest=path.stem, size_bytes=stat.st_size, used_at_s=stat.st_mtime)


async def _write_checked(path: Path, digest: str, chunks: AsyncIterator[bytes], limit_bytes: int) -> int:
    total, size_bytes = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        async for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise DigestMismatch(f"the object of {digest} is larger than the {limit_bytes} bytes on record")
            await asyncio.to_thread(_append, file, total, chunk)
    if total.hexdigest() != digest:
        raise DigestMismatch(f"the object of {digest} has the SHA-256 {total.hexdigest()}")
    return size_bytes


def _append(file: BinaryIO, total: hashlib._Hash, chunk: bytes) -> None:
    total.update(chunk)
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


def _hash_and_touch(path: Path) -> str:
    """The time of the file is that of its last use, so that a restart knows what was used recently."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    os.utime(path)
    return found


def _sentence(error: OSError, folder: Path) -> str:
    if error.errno in _FULL:
        return f"no space is left on the disk of {folder}"
    return f"the cache folder {folder} cannot be written: {error}"
