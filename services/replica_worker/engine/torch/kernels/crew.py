"""A few threads that run parts of one kernel side by side, without the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Crew:
    """`threads` counts the caller's own. Owned by one engine: engines of one process do not share a crew."""

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self._others = ThreadPoolExecutor(self.threads - 1, "engine-crew") if self.threads > 1 else None

    def run(self, kernel: Callable[..., None], common: Sequence[Any], parts: Sequence[Any]) -> None:
        """`kernel(*common, part)` for every part; returns when all are done. Raises what the first one raised."""
        if self._others is None or len(parts) == 1:
            for part in parts:
                kernel(*common, part)
            return
        theirs = [self._others.submit(kernel, *common, part) for part in parts[1:]]
        kernel(*common, parts[0])
        for one in theirs:
            one.result()
