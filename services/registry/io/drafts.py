"""Files of uploads that are not whole yet: each grows in a folder until the store takes it in as it is.

What has arrived is what is in it, also after a kill. Each has one writer, who holds the system's lock on it, and the
system lets go of that when the writer dies. So nobody can write to what the store has taken in.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from services.registry.core.files.verify import FileFacts
from services.registry.io.draft_files import held, remove_unused, sizes
from services.registry.io.finite import Bytes
from services.registry.io.inspection import Inspection
from shared.store.port import StoreUnavailable

_READ_BYTES = 1 << 20


class Drafts:
    """Blocking. Everything here may raise StoreUnavailable, as if the folder were a part of the store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self, digest: str) -> Draft:
        """Of a file that is to have this SHA-256. Nothing is on the disk yet."""
        return Draft(self._folder, digest)

    def reach(self, digest: str) -> int:
        """How many bytes of a file are here."""
        with _told():
            return max((size for _, size in sizes(self._folder, f"{digest}.")), default=0)

    def forget(self, digest: str) -> None:
        """What nobody is writing to."""
        with _told():
            for path, _ in sizes(self._folder, f"{digest}."):
                remove_unused(path, lambda _: True)

    def prune(self, before_s: float) -> int:
        """Forget what nobody has written to since then (seconds since 1970); how many that were."""
        with _told():
            found = [path for path, _ in sizes(self._folder)]
            return sum(remove_unused(path, lambda file: os.fstat(file).st_mtime < before_s) for path in found)


class Draft:
    """One upload. Blocking; `close` waits for a call that is still under way in another thread, and those that come
    after it do nothing."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.path = folder / f"{digest}.{secrets.token_hex(8)}"
        self.size_bytes = 0
        self._expected = digest
        self._reading = Inspection()
        self._written = (0, 0)
        self._file: FileIO | None = None
        self._closed = False
        self._turn = threading.Lock()

    @property
    def digest(self) -> str:
        """Of the bytes that are in it."""
        return self._reading.digest

    def facts(self) -> FileFacts:
        """What was learnt of the bytes that are in it as they came."""
        return self._reading.facts()

    def is_as_written(self) -> bool:
        """Whether nobody has written to the file since this draft did, wherever it lies by now. False once closed."""
        with self._turn, _told():
            return self._file is not None and not self._closed and _state(self._file) == self._written

    def resume(self, size_bytes: int) -> bool:
        """Begin with so many bytes of what has come before: in the same file, or in a copy if that one is still being
        written to, perhaps for somebody who is gone. False if there are not so many."""
        with self._turn, _told():
            if self._closed:
                return False
            found = sorted((size, path) for path, size in sizes(self.path.parent, f"{self._expected}."))
            enough = [path for size, path in found if size >= size_bytes]
            return any(self._take_over(path, size_bytes) for path in enough) or self._copy(enough[:1], size_bytes)

    def append(self, piece: Bytes) -> None:
        """After a failure a beginning of the piece may be in the file, and it is to be closed."""
        with self._turn, _told():
            if piece and not self._closed:
                self._write(piece)

    def close(self) -> None:
        """What is in it stays for whoever goes on."""
        with self._turn:
            self._closed = True
            if self._file is not None:
                self._file.close()

    def _take_over(self, path: Path, size_bytes: int) -> bool:
        file = held(path, os.O_RDWR)
        if file is None:
            return False
        if os.fstat(file.fileno()).st_size < size_bytes:  # somebody else has taken it over since
            file.close()
            return False
        self.path, self._file = path, file
        for chunk in _beginning(file, size_bytes):
            self._reading.feed(chunk)
        file.truncate(size_bytes)
        file.seek(size_bytes)
        self._written = _state(file)
        self.size_bytes = size_bytes
        return True

    def _copy(self, paths: list[Path], size_bytes: int) -> bool:
        for path in paths:
            with suppress(FileNotFoundError), FileIO(path) as file:  # it may have become whole, and an object
                for chunk in _beginning(file, size_bytes):
                    self._write(chunk)
        return self.size_bytes == size_bytes and bool(paths)

    def _write(self, piece: Bytes) -> None:
        file = self._file = self._file or self._begun()
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]
        self._written = _state(file)
        self._reading.feed(piece)
        self.size_bytes += len(piece)

    def _begun(self) -> FileIO:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while (file := held(self.path, os.O_RDWR | os.O_CREAT)) is None:
            pass  # somebody forgot it between its opening and its locking
        return file


def _state(file: FileIO) -> tuple[int, int]:
    """Another one after every change of its bytes that the system's clock can tell from the last."""
    now = os.fstat(file.fileno())
    return now.st_mtime_ns, now.st_size


def _beginning(file: FileIO, size_bytes: int) -> Iterator[bytes]:
    while size_bytes and (chunk := file.read(min(size_bytes, _READ_BYTES))):
        size_bytes -= len(chunk)
        yield chunk


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"uploads cannot be kept: {error}") from error
