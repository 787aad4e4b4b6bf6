"""Who wants to know that the database has changed: the relay and the evaluations, without asking it all day."""

from __future__ import annotations

import asyncio


class Changes:
    def __init__(self) -> None:
        self._followers: list[asyncio.Event] = []

    def follow(self) -> asyncio.Event:
        """An event that is set after every commit from now on; who waits for it clears it."""
        event = asyncio.Event()
        self._followers.append(event)
        return event

    def tell(self) -> None:
        for event in self._followers:
            event.set()
