"""What a gateway and the ledger of limits say to each other: one question at a time about each tenant and key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from services.gateway.core.allowance import Ask, Grant
from services.gateway.core.allowances import Allowances
from services.gateway.io.limits_redis import CONNECTIONS, LedgerAway
from services.gateway.reach import Reach
from shared.runtime.clock import Clock

_AT_ONCE = 200
_NOBODY = ""
"""Who is asked about to hear from the ledger who it is, where nobody else has anything to ask."""
_LAST_S = 1.0
"""For a gateway that ends."""


class Ledger(Protocol):
    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        """Raises LedgerAway."""

    async def close(self) -> None: ...


class _Flight(NamedTuple):
    """A question that may still wait for a line: about these `names`, and whoever comes before it leaves."""

    names: list[str]
    task: asyncio.Task[None]


class Leases:
    """`ledger` None: there is none, and nobody may ask. What is asked goes on when nobody waits for it any more."""

    def __init__(self, ledger: Ledger | None, allowances: Allowances, reach: Reach, clock: Clock) -> None:
        self._ledger = ledger
        self._allowances = allowances
        self._reach = reach
        self._clock = clock
        self._lines = asyncio.Semaphore(CONNECTIONS)
        self._flights: dict[str, _Flight] = {}
        self._boarding: _Flight | None = None

    def fly(self, name: str) -> asyncio.Task[None]:
        """One question at a time about each of them: who comes meanwhile waits for the next. While all lines are busy
        those who wait for one gather, and ask together: a slow ledger is not taken for one that is away because many
        come at once."""
        if (flight := self._flights.get(name)) is None:
            flight = self._flights[name] = self._next_flight()
            flight.names.append(name)
        return flight.task

    async def stop(self) -> None:
        """What this gateway held is free for others, if the ledger is there."""
        if self._ledger is None:
            return
        for task in (tasks := {flight.task for flight in self._flights.values()}):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.0 if self._reach.away else _LAST_S):
                await self._ask(self._allowances.partings())
        await self._ledger.close()

    async def turn(self, names: Sequence[str]) -> None:
        """Give back what nobody used, keep what is used, and look whether the ledger is there again. One that has
        forgotten everything is to hear of it from those as well whom nobody asks anything just now."""
        if self._ledger is None:
            return
        if self._reach.away:
            await self._ask([self._allowances.greeting()])
        known = self._allowances.greeting().epoch
        await self._tell(names)
        if self._allowances.greeting().epoch != known:
            await self._tell(names)

    async def _tell(self, names: Sequence[str]) -> None:
        """One line at a time: requests may need the others."""
        told = [_NOBODY, *names] if names else []
        for first in range(0, len(told), _AT_ONCE):
            await asyncio.wait({self.fly(name) for name in told[first : first + _AT_ONCE]})

    def _next_flight(self) -> _Flight:
        if self._boarding is None or len(self._boarding.names) == _AT_ONCE:
            names: list[str] = []
            self._boarding = flight = _Flight(names, asyncio.create_task(self._exchange(names)))
            flight.task.add_done_callback(lambda _: self._landed(names))
        return self._boarding

    async def _exchange(self, names: list[str]) -> None:
        """Each answer says who the ledger is: nobody waits for that before he says what he holds. Of whom nothing is
        asked may be asked something meanwhile."""
        async with self._lines:
            if self._boarding is not None and self._boarding.names is names:
                self._boarding = None
            if self._reach.away:
                self._allowances.unasked(names)
                return
            asks = self._allowances.asks(names, self._clock.now_s())
            who = [self._allowances.greeting()] if _NOBODY in names else []
            self._landed({*names} - {ask.subject for ask in asks})
            names[:] = [ask.subject for ask in asks]
            await self._ask(asks or who)

    def _landed(self, names: Iterable[str]) -> None:
        for name in names:
            self._flights.pop(name, None)

    async def _ask(self, asks: list[Ask]) -> None:
        assert self._ledger is not None, "nobody asks where there is none"
        if not asks:
            return
        try:
            grants = await self._ledger.ask(asks)
        except LedgerAway as error:
            for ask in asks:
                self._allowances.lost(ask)
            self._reach.lost(error)
            return
        self._reach.found()
        for ask, grant in zip(asks, grants, strict=True):
            self._allowances.granted(ask, grant, self._clock.now_s())
