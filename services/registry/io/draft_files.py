"""The files of drafts in their folder: which they are, and whose turn it is to write. Blocking; all of it may raise
OSError."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

_NAME = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")


def held(path: Path, how: int) -> FileIO | None:
    """The file with its lock, or None if somebody else has it or it is not there (any more)."""
    try:
        file = FileIO(os.open(path, how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "r+")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one who had it before may have given it to the store, or have removed it.
        if os.path.samestat(os.fstat(file.fileno()), os.lstat(path)):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def remove_unused(path: Path, if_so: Callable[[int], bool]) -> bool:
    file = held(path, os.O_RDWR)
    if file is None:
        return False
    with file:
        if wanted := if_so(file.fileno()):
            path.unlink()
        return wanted


def sizes(folder: Path, beginning: str = "") -> Iterator[tuple[Path, int]]:
    """Of the drafts in it whose names begin so: whatever else lies there is none of ours."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and _is_draft(entry):
                with suppress(FileNotFoundError):  # gone since
                    yield Path(entry.path), entry.stat(follow_symlinks=False).st_size


def _is_draft(entry: os.DirEntry[str]) -> bool:
    return _NAME.fullmatch(entry.name) is not None and entry.is_file(follow_symlinks=False)
