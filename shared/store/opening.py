"""Files that are opened in a thread, for somebody who may be cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import BinaryIO


async def opened(open_file: Callable[[], BinaryIO]) -> BinaryIO:
    """What `open_file` returns, to be closed by the caller; it raises what that raises. Of somebody who is cancelled
    while the thread still opens it nothing stays open: nobody would know of it."""
    held = _Held()
    try:
        return await asyncio.to_thread(held.take, open_file)
    except BaseException:
        held.leave()
        raise


class _Held:
    def __init__(self) -> None:
        self._turn = Lock()
        self._file: BinaryIO | None = None
        self._left = False

    def take(self, open_file: Callable[[], BinaryIO]) -> BinaryIO:
        file = open_file()
        with self._turn:
            self._file = file
            if self._left:
                file.close()
        return file

    def leave(self) -> None:
        with self._turn:
            self._left = True
            if self._file is not None:
                self._file.close()
