"""A line that is written over on a terminal, and now and then a new one anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

_TERMINAL_EVERY_S, _ELSEWHERE_EVERY_S = 0.1, 5.0
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """`show` may be called as often as there is news. On a terminal nothing of it stays; elsewhere what takes less
    than some seconds says nothing."""

    def __init__(self, stream: TextIO, columns: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now_s = now_s
        self._terminal = stream.isatty()
        self._columns = columns
        self.began_s = now_s()
        self._every_s = _TERMINAL_EVERY_S if self._terminal else _ELSEWHERE_EVERY_S
        self._next_s = self.began_s + (0.0 if self._terminal else self._every_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._terminal:
            self._write(_CLEAR)

    @property
    def elapsed_s(self) -> float:
        return self._now_s() - self.began_s

    def show(self, line: Callable[[], str]) -> None:
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        self._write(f"{_CLEAR}{line()[: self._columns - 1]}" if self._terminal else f"{line()}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
