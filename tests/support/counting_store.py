"""A store that knows how often it was read, and breaks on order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from shared.store.port import ObjectStore


class CountingStore:
    """Any store, with how often each object was read; `broken` is raised instead of reading."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.reads: dict[str, int] = defaultdict(int)
        self.open_reads = 0
        self.broken: Exception | None = None

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        self.reads[key] += 1
        if self.broken is not None:
            raise self.broken
        self.open_reads += 1
        try:
            async with aclosing(self._store.read(key, start)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk
        finally:
            self.open_reads -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
