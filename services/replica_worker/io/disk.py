"""Weights files on the local disk, named by their SHA-256 and nothing that a customer chose."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import msgspec

from services.replica_worker.io.half_file import Fetch, complete
from shared.messages.identity import is_digest
from shared.store.port import DigestMismatch, ObjectChanged, ObjectMissing

_SUFFIX = ".safetensors"
_PARTIAL = ".part"
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
    whole: bool
    """False: what is left of a write that broke off."""


class DiskFiles:
    """One folder, used by one process at a time. A name exists only once all its bytes were right.

    Files are not synced: a machine that loses power may leave a damaged one, which the check before every
    read finds like any other damage.
    """

    def __init__(self, folder: Path, leftovers: Collection[str] = ()) -> None:
        """`leftovers` are folders in it that nobody needs any more; they are deleted once the folder is taken."""
        self._folder = folder
        self._leftovers = leftovers
        self._lock: BinaryIO | None = None

    def open(self) -> list[StoredFile]:
        """Take the folder and list what is in it, oldest use first.

        Blocking. Raises DiskRefused if the folder cannot be used or another process has it.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self._folder / ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in self._leftovers:
                shutil.rmtree(self._folder / name, ignore_errors=True)
            found = [*self._own(_SUFFIX), *self._halves()]
            return sorted(map(_describe, found), key=lambda file: file.used_at_s)
        except BlockingIOError as error:
            self.close()
            raise DiskRefused(f"the cache folder {self._folder} belongs to a replica that runs") from error
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

    async def write(self, digest: str, fetch: Fetch, limit_bytes: int) -> int:
        """Store a file and return its size. One writer per digest at a time. A folder that was cleared away
        comes back: a replica that stays up without it would refuse every adapter that it does not hold.

        Raises DigestMismatch (also for more than `limit_bytes`), DiskRefused, or what `fetch` raises; the file
        is not there then. What a cancelled fetch or a store in trouble left is kept, and the next write goes on
        from it: `kept_bytes`.
        """
        path = self._partial(digest)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            size_bytes = await complete(path, digest, fetch, limit_bytes)
            path.replace(self.path(digest))
        except OSError as error:
            self._discard(path)
            raise DiskRefused(_sentence(error, self._folder)) from error
        except (DigestMismatch, ObjectMissing, ObjectChanged):
            self._discard(path)
            raise
        finally:
            if not self.kept_bytes(digest):
                self._discard(path)
        return size_bytes

    def kept_bytes(self, digest: str) -> int:
        """What a write that broke off left for the next one."""
        try:
            return self._partial(digest).stat().st_size
        except OSError:
            return 0

    async def check(self, digest: str) -> None:
        """Hash the file again. Raises FileDamaged."""
        try:
            found = await asyncio.to_thread(_hash_and_touch, self.path(digest))
        except OSError as error:
            raise FileDamaged(f"the file of {digest} cannot be read: {error}") from error
        if found != digest:
            raise FileDamaged(f"the file of {digest} has the SHA-256 {found}")

    def delete(self, digest: str) -> None:
        """With what a broken write left. Deleting what is not there is no error. Raises DiskRefused; the file
        may still be there then."""
        try:
            self.path(digest).unlink(missing_ok=True)
            self._partial(digest).unlink(missing_ok=True)
        except OSError as error:
            raise DiskRefused(f"the file of {digest} cannot be deleted: {error}") from error

    def _partial(self, digest: str) -> Path:
        return self.path(digest).with_suffix(_PARTIAL)

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # what does not go now goes with the digest, or at a start
            path.unlink(missing_ok=True)

    def _halves(self) -> list[Path]:
        """Without those that are of no use, which go."""
        halves = self._own(_PARTIAL)
        done = [half for half in halves if half.with_suffix(_SUFFIX).exists() or not half.stat().st_size]
        for half in done:
            half.unlink()
        return [half for half in halves if half not in done]

    def _own(self, suffix: str) -> list[Path]:
        return [path for path in self._folder.glob(f"*{suffix}") if is_digest(path.stem) and not path.is_symlink()]


def _describe(path: Path) -> StoredFile:
    stat = path.stat()
    whole = path.suffix == _SUFFIX
    return StoredFile(digest=path.stem, size_bytes=stat.st_size, used_at_s=stat.st_mtime, whole=whole)


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
