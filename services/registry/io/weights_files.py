"""Weights files below the folders that the settings name, reached without following any symbolic link."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import BinaryIO, cast

from services.registry.core.defects import quoted
from services.registry.core.files import sources
from services.registry.core.files.peft_config import CONFIG_NAME, LARGEST_CONFIG_BYTES
from services.registry.core.files.sources import PathSource
from services.registry.io.source_unavailable import SourceUnavailable
from shared.messages.adapters import Defect
from shared.store.opening import opened

CHUNK_BYTES = 1 << 20
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
"""What the system says of a path at which there can be nothing."""


class _Link(Exception):
    """A step of a path is a symbolic link; the message is its name."""


class _File:
    def __init__(self, place: PathSource, config: bytes | None) -> None:
        self._place = place
        self.config = config

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable."""
        file = await opened(partial(_open, self._place))
        try:
            while chunk := await asyncio.to_thread(_read, file, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


def open_path(source: PathSource) -> _File | Defect:
    """Blocking. Raises SourceUnavailable."""
    try:
        mode = _mode(source)
        if mode is None:
            return sources.missing_fault(f"The path in weights_uri, {quoted('/'.join(source.steps))},")
        if stat.S_ISDIR(mode):
            return _open_folder(source)
        return sources.suffix_fault(source.steps[-1]) or _open_file(source, mode)
    except _Link as link:
        return sources.symlink_fault(str(link))
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error


def _open_folder(folder: PathSource) -> _File | Defect:
    place = _beside(folder.steps, folder, sources.WEIGHTS_NAME)
    mode = _mode(place)
    if mode is None:
        names = _names(folder)
        pickles = filter(None, (sources.pickle_fault(name) for name in names))
        return next(pickles, sources.missing_fault(f"{sources.WEIGHTS_NAME} in the folder"))
    return _open_file(place, mode)


def _open_file(place: PathSource, mode: int) -> _File | Defect:
    if not stat.S_ISREG(mode):  # a pipe would wait for ever, a device never ends
        return sources.special_fault()
    config = _beside(place.steps[:-1], place, CONFIG_NAME)
    config_mode = _mode(config)
    if config_mode is None or not stat.S_ISREG(config_mode):
        return _File(place, None)
    with _open(config) as file:
        return _File(place, file.read(LARGEST_CONFIG_BYTES + 1))


def _beside(steps: tuple[str, ...], source: PathSource, name: str) -> PathSource:
    return PathSource(folder=source.folder, steps=(*steps, name))


def _names(source: PathSource) -> list[str]:
    """What is in a folder. Raises OSError, also for one that a link leads to by now."""
    folder = _down(source.folder, source.steps)
    try:
        return sorted(os.listdir(folder))
    finally:
        os.close(folder)


def _mode(source: PathSource) -> int | None:
    """What is there, or None for nothing. Raises _Link, and OSError if nobody can tell."""
    path, mode = source.folder, None
    for step in source.steps:
        path = os.path.join(path, step)
        try:
            mode = os.lstat(path).st_mode
        except OSError as error:
            if error.errno in _NOWHERE:
                return None
            raise
        if stat.S_ISLNK(mode):
            raise _Link(step)
    return mode


def _open(source: PathSource) -> BinaryIO:
    """Raises SourceUnavailable."""
    try:
        at = _down(source.folder, source.steps[:-1])
        file = os.fdopen(_into(at, source.steps[-1], os.O_NONBLOCK), "rb", buffering=0)
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise SourceUnavailable("the weights cannot be read: they are no regular file any more")
    return cast(BinaryIO, file)


def _down(folder: str, steps: Iterable[str]) -> int:
    """The folder that the steps lead to, and none of them through a link: one that is there now was put there since
    the look. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for step in steps:
        at = _into(at, step, os.O_DIRECTORY)
    return at


def _into(folder: int, step: str, kind: int) -> int:
    """Open one step and let go of the folder that it is in."""
    try:
        return os.open(step, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=folder)
    finally:
        os.close(folder)


def _read(file: BinaryIO, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise SourceUnavailable(f"the weights cannot be read: {error.strerror}") from error
