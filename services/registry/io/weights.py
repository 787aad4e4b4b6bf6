"""Opens what an announcement's `weights_uri` names: an upload, or a file below an allowed folder."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from services.registry.core import sources
from services.registry.core.defects import quoted
from services.registry.core.peft_config import CONFIG_NAME, LARGEST_CONFIG_BYTES
from services.registry.core.sources import PathSource, UploadSource
from shared.messages.adapters import Defect
from shared.store.port import ObjectMissing, ObjectStore, weights_key

CHUNK_BYTES = 1 << 20
UPLOADS_FOLDER = "uploads"
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""What the system says of a path at which there can be nothing."""


class SourceUnavailable(Exception):
    """The folder that weights come from does not answer; this says nothing about the file in it."""


class _LeadsOut(Exception):
    """A path or a link in it leads outside the folders."""


class Weights(Protocol):
    """One weights file, readable from the beginning as often as needed."""

    @property
    def config(self) -> bytes | None:
        """The adapter_config.json that belongs to it."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable, or what an ObjectStore raises: ObjectMissing for what is there no more."""


def upload_key(digest: str) -> str:
    """Where an uploaded file waits for the announcement that names it."""
    return f"{UPLOADS_FOLDER}/{digest}"


class WeightsSources:
    """`folders` are absolute paths; a symbolic link may lead anywhere within them and nowhere else."""

    def __init__(self, store: ObjectStore, folders: tuple[str, ...]) -> None:
        self._store = store
        self._folders = folders

    async def open(self, uri: str) -> Weights | Defect:
        """Raises SourceUnavailable, StoreUnavailable."""
        source = sources.locate(uri, self._folders)
        if isinstance(source, UploadSource):
            return await self._open_upload(source.digest)
        if isinstance(source, PathSource):
            return await asyncio.to_thread(_open_path, source.path, self._folders)
        return source

    async def _open_upload(self, digest: str) -> Weights | Defect:
        upload = _Upload(self._store, digest)
        return upload if await upload.exists() else sources.missing_fault(f"An upload with the SHA-256 {digest}")


class _Upload:
    """Uploaded bytes. They move to their final place once an adapter with them is accepted, which may happen
    between any two readings: the same bytes may be announced under several ids."""

    config = None

    def __init__(self, store: ObjectStore, digest: str) -> None:
        self._store = store
        self._waiting, self._final = upload_key(digest), weights_key(digest)

    async def exists(self) -> bool:
        return await self._store.exists(self._waiting) or await self._store.exists(self._final)

    async def chunks(self) -> AsyncIterator[bytes]:
        read_bytes = 0
        try:
            async for chunk in self._store.read(self._waiting):
                read_bytes += len(chunk)
                yield chunk
        except ObjectMissing:
            async for chunk in self._store.read(self._final, read_bytes):
                yield chunk


class _File:
    def __init__(self, path: str, config: bytes | None) -> None:
        self._path = path
        self.config = config

    async def chunks(self) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread(_open, self._path)
        try:
            while chunk := await asyncio.to_thread(_read, file, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


def _open_path(path: str, folders: tuple[str, ...]) -> Weights | Defect:
    roots = [os.path.realpath(folder) for folder in folders]
    try:
        place = _real(path, roots)
        if os.path.isdir(place):
            return _open_folder(place, roots)
        if _mode(place) is None:
            return sources.missing_fault(f"The path in weights_uri, {quoted(path)},")
        return sources.suffix_fault(os.path.basename(place)) or _open_file(place, roots)
    except _LeadsOut:
        return sources.outside_fault(folders)
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error


def _open_folder(folder: str, roots: list[str]) -> Weights | Defect:
    place = _real(os.path.join(folder, sources.WEIGHTS_NAME), roots)
    if not os.path.lexists(place):
        pickles = filter(None, (sources.pickle_fault(name) for name in sorted(os.listdir(folder))))
        return next(pickles, sources.missing_fault(f"{sources.WEIGHTS_NAME} in the folder"))
    return sources.pickle_fault(os.path.basename(place)) or _open_file(place, roots)


def _open_file(place: str, roots: list[str]) -> Weights | Defect:
    mode = _mode(place)
    if mode is None:
        return sources.missing_fault("The file")
    if not stat.S_ISREG(mode):  # a pipe would wait for ever, a device never ends
        return sources.special_fault()
    config = _real(os.path.join(os.path.dirname(place), CONFIG_NAME), roots)
    return _File(place, _config(Path(config)))


def _mode(place: str) -> int | None:
    """What is there, or None for nothing. Raises OSError if nobody can tell."""
    try:
        return os.stat(place).st_mode
    except OSError as error:
        if error.errno in _NOWHERE:
            return None
        raise


def _real(path: str, roots: list[str]) -> str:
    """The path without links. Raises _LeadsOut."""
    place = os.path.realpath(path)
    if not sources.is_inside(place, roots):
        raise _LeadsOut
    return place


def _config(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(LARGEST_CONFIG_BYTES + 1)


def _open(path: str) -> BinaryIO:
    """The path had no link in it when it was looked at, so one that is there now was put there since."""
    try:
        return cast(BinaryIO, os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0))
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error


def _read(file: BinaryIO, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error
