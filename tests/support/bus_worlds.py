"""The two buses as test worlds: the same questions are put to both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.nats import NatsBus, connect
from shared.bus.port import Bus
from tests.support.nats_server import NatsServer, nats_server

DEADLINE_S = 60.0


class World(Protocol):
    async def connect(self, service: str) -> Bus: ...

    async def lose(self) -> None:
        """Take the bus away from everybody; returns when all of them know."""

    async def find(self) -> None:
        """Give it back; returns when everybody is connected."""


class MemoryWorld:
    def __init__(self) -> None:
        self._broker = MemoryBroker()
        self._buses: list[MemoryBus] = []

    async def connect(self, service: str) -> Bus:
        self._buses.append(self._broker.connect(service))
        return self._buses[-1]

    async def lose(self) -> None:
        for bus in self._buses:
            self._broker.disconnect(bus)

    async def find(self) -> None:
        for bus in self._buses:
            self._broker.reconnect(bus)

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


class NatsWorld:
    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self._buses: list[NatsBus] = []

    async def connect(self, service: str) -> Bus:
        self._buses.append(await connect(self.server.options(service)))
        return self._buses[-1]

    async def lose(self, *, kill: bool = True) -> None:
        await (self.server.kill() if kill else self.server.stop())
        await until(lambda: not any(bus.connected for bus in self._buses))

    async def find(self) -> None:
        await self.server.start()
        await until(lambda: all(bus.connected for bus in self._buses))

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


@asynccontextmanager
async def world_of(kind: str, folder: Path) -> AsyncIterator[MemoryWorld | NatsWorld]:
    if kind == "memory":
        memory = MemoryWorld()
        yield memory
        await memory.close()
        return
    async with nats_server(folder) as server:
        real = NatsWorld(server)
        yield real
        await real.close()


class Heard:
    """A handler that remembers what it was called with; `reach` waits for the n-th call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self._changed = asyncio.Event()

    async def __call__(self, *arguments: Any) -> None:
        self.note(*arguments)

    def note(self, *arguments: Any) -> None:
        """The same for whoever waits for no handler."""
        self.calls.append(arguments[0] if len(arguments) == 1 else arguments)
        self._changed.set()

    async def reach(self, count: int) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.calls) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.calls


async def until(holds: Callable[[], bool]) -> None:
    """For what nobody announces; fails after DEADLINE_S."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - connection states and logs offer no event to wait for
            await asyncio.sleep(0.005)
