"""An object store in memory behind a link: every read waits for its turn on it, piece by piece."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from shared.runtime.clock import Clock
from shared.store.port import Listed, ObjectMissing

_PIECES = 4
"""Into so many an object is cut, so that reads which run at once share the link."""


class ThrottledStore:
    """`bytes_per_s` is that of all reads together; each begins `latency_s` late."""

    def __init__(self, bytes_per_s: float, latency_s: float, clock: Clock) -> None:
        self.reads: list[str] = []
        """The key of each read, in the order in which they began."""
        self.most_at_once = 0
        self._bytes_per_s = bytes_per_s
        self._latency_s = latency_s
        self._clock = clock
        self._link = asyncio.Lock()
        self._objects: dict[str, bytes] = {}
        self._at_once = 0

    @property
    def reads_by_key(self) -> Counter[str]:
        return Counter(self.reads)

    def beside(self) -> ThrottledStore:
        """The same objects over a link of its own."""
        other = ThrottledStore(self._bytes_per_s, self._latency_s, self._clock)
        other._objects = self._objects
        return other

    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """At once: only reads are what this store is for."""
        self._objects[key] = b"".join([chunk async for chunk in chunks])
        return len(self._objects[key])

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        if key not in self._objects:
            raise ObjectMissing(f"there is no {key}")
        content = self._objects[key][start:]
        self.reads.append(key)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self._clock.sleep_s(self._latency_s)
            size_bytes = max(1, -(-len(content) // _PIECES))
            for at in range(0, len(content), size_bytes):
                piece = content[at : at + size_bytes]
                async with self._link:
                    await self._clock.sleep_s(len(piece) / self._bytes_per_s)
                yield piece
        finally:
            self._at_once -= 1

    async def exists(self, key: str) -> bool:
        return key in self._objects

    async def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    async def listed(self, folder: str, beginning: str = "") -> list[Listed]:
        raise NotImplementedError("nobody lists what a load test put there")
