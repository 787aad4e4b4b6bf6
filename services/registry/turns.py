"""Turns of those in line, so many at once: tenants take turns, and a batch of registrations goes first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from services.registry.core.turns import Entrant, Sight, TurnPolicy, may_begin, rest_s
from services.registry.precedence import Precedence
from shared.runtime.clock import Clock

Lane = tuple[str, bool, bool]


class _Place(msgspec.Struct, frozen=True, eq=False):
    entrant: Entrant
    since_s: float
    granted: asyncio.Future[None]


class Turns:
    def __init__(self, policy: TurnPolicy, precedence: Precedence, clock: Clock) -> None:
        self._policy = policy
        self._precedence = precedence
        self._clock = clock
        self._lanes: dict[Lane, deque[_Place]] = {}
        """In the order of their turns."""
        self._under_way = self._first_under_way = 0
        self._rest_until_s = 0.0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at_s = 0.0
        precedence.follow(self._look)

    @asynccontextmanager
    async def turn(self, entrant: Entrant) -> AsyncIterator[None]:
        """Entered once it is this one's turn, which ends with the context."""
        place = _Place(entrant, self._since_s(entrant), asyncio.get_running_loop().create_future())
        self._lanes.setdefault(entrant.lane, deque()).append(place)
        self._look()
        try:
            await place.granted
        except asyncio.CancelledError:
            if not place.granted.cancelled():  # its turn came as it left
                self._end(place)
            raise
        began_s = self._clock.now_s()
        try:
            yield
        finally:
            if self._precedence.batch:
                now_s = self._clock.now_s()
                self._rest_until_s = max(self._rest_until_s, now_s + rest_s(now_s - began_s, self._policy))
            self._end(place)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _since_s(self, entrant: Entrant) -> float:
        """By the clock that never goes back; what is known from before this process began is so much earlier."""
        if entrant.ready_at_s is None:
            return self._clock.now_s()
        return self._clock.now_s() - max(self._clock.wall_s() - entrant.ready_at_s, 0.0)

    def _look(self) -> None:
        """Everybody begins who may."""
        while (place := self._next()) is not None:
            self._under_way += 1
            self._first_under_way += not place.entrant.begun
            place.granted.set_result(None)

    def _next(self) -> _Place | None:
        """Whose turn it is now; that lane is the last one then."""
        self._forget_left()
        sight = self._sight()
        for lane, places in self._lanes.items():
            leave = may_begin(sight, self._policy, self._clock.now_s(), begun=places[0].entrant.begun)
            if leave.granted:
                place = places.popleft()
                del self._lanes[lane]
                if places:
                    self._lanes[lane] = places
                return place
            if leave.again_at_s is not None:
                self._look_again(leave.again_at_s)
        return None

    def _sight(self) -> Sight:
        waiting = (places[0] for places in self._lanes.values())
        return Sight(
            batch=self._precedence.batch,
            under_way=self._under_way,
            first_under_way=self._first_under_way,
            oldest_since_s=_oldest_since_s(waiting),
            rest_until_s=self._rest_until_s,
        )

    def _forget_left(self) -> None:
        for lane, places in list(self._lanes.items()):
            while places and places[0].granted.done():
                places.popleft()
            if not places:
                del self._lanes[lane]

    def _end(self, place: _Place) -> None:
        self._under_way -= 1
        self._first_under_way -= not place.entrant.begun
        self._look()

    def _look_again(self, at_s: float) -> None:
        if self._alarm is not None:
            if self._alarm_at_s <= at_s:
                return
            self._alarm.cancel()
        self._alarm_at_s = at_s
        self._alarm = asyncio.create_task(self._wait(at_s))

    async def _wait(self, at_s: float) -> None:
        await self._clock.sleep_s(at_s - self._clock.now_s())
        self._alarm = None
        self._look()


def _oldest_since_s(waiting: Iterable[_Place]) -> float:
    return min((place.since_s for place in waiting if not place.entrant.begun), default=float("inf"))
