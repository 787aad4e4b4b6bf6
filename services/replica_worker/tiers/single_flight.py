"""Many ask for one thing at once: it is done once, and all get the result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """A flight goes on when those who wait for it leave; a failed one is forgotten, so the next ask tries anew."""

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[V]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """Join the flight of `key`, or start it with `work`. Raises what the flight raises."""
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(_run(work), name=f"flight of {key}")
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(flight)

    def flies(self, key: K) -> bool:
        return key in self._flights

    async def close(self) -> None:
        """Cancel what is under way and wait until it has ended."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def _landed(self, key: K, flight: asyncio.Task[V]) -> None:
        self._flights.pop(key, None)
        if not flight.cancelled():
            flight.exception()  # everyone who waited may have left: then this is where it is looked at


async def _run(work: Callable[[], Awaitable[V]]) -> V:
    return await work()
