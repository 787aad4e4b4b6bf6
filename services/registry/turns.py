"""Turns of those in line, so many at once: tenants take turns, and a batch of registrations goes first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
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


class _Line:
    """Lanes in the order of their turns. No step takes longer with more of them: every customer may have one."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[Lane, deque[_Place]] = OrderedDict()

    def add(self, place: _Place) -> None:
        self._lanes.setdefault(place.entrant.lane, deque()).append(place)

    def first(self) -> _Place | None:
        """Whose turn comes next. Who has left is forgotten."""
        while self._lanes:
            lane, places = next(iter(self._lanes.items()))
            while places and places[0].granted.done():
                places.popleft()
            if places:
                return places[0]
            del self._lanes[lane]
        return None

    def take(self) -> None:
        """The first one begins; its lane is the last one then."""
        lane, places = next(iter(self._lanes.items()))
        places.popleft()
        if places:
            self._lanes.move_to_end(lane)
        else:
            del self._lanes[lane]


class _Ages:
    """Since when those in a line wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Place]] = []
        self._number = itertools.count()

    def add(self, place: _Place) -> None:
        heapq.heappush(self._heap, (place.since_s, next(self._number), place))

    def oldest_since_s(self) -> float:
        while self._heap and self._heap[0][2].granted.done():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")


class Turns:
    def __init__(self, policy: TurnPolicy, precedence: Precedence, clock: Clock) -> None:
        self._policy = policy
        self._precedence = precedence
        self._clock = clock
        self._new, self._begun = _Line(), _Line()
        self._ages = _Ages()
        """Of those who are new."""
        self._lines = deque((self._new, self._begun))
        """In the order of their turns, if both may have one."""
        self._under_way = self._first_under_way = 0
        self._rest_until_s = 0.0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at_s = 0.0
        precedence.follow(self._look)

    @asynccontextmanager
    async def turn(self, entrant: Entrant) -> AsyncIterator[None]:
        """Entered once it is this one's turn, which ends with the context."""
        place = _Place(entrant, self._since_s(entrant), asyncio.get_running_loop().create_future())
        self._enter(place)
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
            # Only for who was new: one whom no replica answers would have the others rest for ever.
            if self._precedence.batch and not entrant.begun:
                now_s = self._clock.now_s()
                self._rest_until_s = max(self._rest_until_s, now_s + rest_s(now_s - began_s, self._policy))
            self._end(place)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _enter(self, place: _Place) -> None:
        if place.entrant.begun:
            self._begun.add(place)
        else:
            self._new.add(place)
            self._ages.add(place)

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
        """Whose turn it is now; that line is the last one then."""
        for line in self._lines:
            if (place := line.first()) is None:
                continue
            leave = may_begin(self._sight(), self._policy, self._clock.now_s(), begun=place.entrant.begun)
            if leave.granted:
                line.take()
                self._lines.remove(line)
                self._lines.append(line)
                return place
            if leave.again_at_s is not None:
                self._look_again(leave.again_at_s)
        return None

    def _sight(self) -> Sight:
        return Sight(
            batch=self._precedence.batch,
            under_way=self._under_way,
            first_under_way=self._first_under_way,
            oldest_since_s=self._ages.oldest_since_s(),
            rest_until_s=self._rest_until_s,
        )

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
