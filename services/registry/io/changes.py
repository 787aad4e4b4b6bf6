"""Who is told that the database has changed, so that nobody has to ask it all day."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry.core.turns import Entrant


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says against an adapter, as a sentence without its full stop."""

    adapter_id: str
    reason: str


class Changes:
    """For this process only: what matters is in the database, where the next start finds it."""

    def __init__(self) -> None:
        self._commits: list[asyncio.Event] = []
        self._verified: list[asyncio.Queue[Entrant]] = []
        self._left: list[asyncio.Queue[Entrant]] = []
        self._activated: list[asyncio.Queue[Entrant]] = []
        self._troubles: list[asyncio.Queue[Trouble]] = []

    def follow_commits(self) -> asyncio.Event:
        """An event that is set after every commit from now on; who waits for it clears it."""
        event = asyncio.Event()
        self._commits.append(event)
        return event

    def follow_verified(self) -> asyncio.Queue[Entrant]:
        """Adapters that are verified from now on."""
        queue: asyncio.Queue[Entrant] = asyncio.Queue()
        self._verified.append(queue)
        return queue

    def follow_left(self) -> asyncio.Queue[Entrant]:
        """Adapters whose verification could not be ended by whoever began it, from now on."""
        queue: asyncio.Queue[Entrant] = asyncio.Queue()
        self._left.append(queue)
        return queue

    def follow_activated(self) -> asyncio.Queue[Entrant]:
        """Adapters that become active from now on, if they were announced with an alias."""
        queue: asyncio.Queue[Entrant] = asyncio.Queue()
        self._activated.append(queue)
        return queue

    def follow_troubles(self) -> asyncio.Queue[Trouble]:
        """What replicas say against active adapters from now on."""
        queue: asyncio.Queue[Trouble] = asyncio.Queue()
        self._troubles.append(queue)
        return queue

    def tell_activated(self, adapter: Entrant) -> None:
        for queue in self._activated:
            queue.put_nowait(adapter)

    def tell_trouble(self, trouble: Trouble) -> None:
        for queue in self._troubles:
            queue.put_nowait(trouble)

    def tell_commit(self) -> None:
        for event in self._commits:
            event.set()

    def tell_verified(self, adapter: Entrant) -> None:
        for queue in self._verified:
            queue.put_nowait(adapter)

    def tell_left(self, adapter: Entrant) -> None:
        for queue in self._left:
            queue.put_nowait(adapter)
