"""What requests and operations ask of the tiers at this moment, which background work gives way to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from shared.messages.identity import AdapterKey


class Demand:
    def __init__(self) -> None:
        self._awaited: Counter[AdapterKey] = Counter()
        self._urgent = 0
        self._calm = asyncio.Event()
        self._calm.set()

    def awaits(self, key: AdapterKey) -> bool:
        """A request waits for it, and has no reference on a slot yet."""
        return key in self._awaited

    @property
    def awaited(self) -> Collection[AdapterKey]:
        return self._awaited.keys()

    async def calm(self) -> None:
        """Returns when nobody waits for an adapter."""
        await self._calm.wait()

    @contextmanager
    def urgently(self) -> Iterator[None]:
        """Background loads wait meanwhile, for a while."""
        self._urgent += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._calm.set()

    @contextmanager
    def awaiting(self, key: AdapterKey) -> Iterator[None]:
        """What of it is here already stays meanwhile, whoever wants to drop it."""
        self._awaited[key] += 1
        try:
            yield
        finally:
            self._awaited[key] -= 1
            if not self._awaited[key]:
                del self._awaited[key]
