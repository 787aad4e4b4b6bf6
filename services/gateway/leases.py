"""What a gateway and the ledger of limits say to each other: one question at a time about each tenant and key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from services.gateway.core.allowance import Ask, Grant
from services.gateway.core.allowances import Allowances
from services.gateway.io.limits_redis import LedgerAway
from services.gateway.reach import Reach
from shared.runtime.clock import Clock

_AT_ONCE = 200
_LAST_S = 1.0
"""For a gateway that ends."""


class Ledger(Protocol):
    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        """Raises LedgerAway."""

    async def close(self) -> None: ...


class Leases:
    """`ledger` None: there is none, and nobody may ask. What is asked goes on when nobody waits for it any more."""

    def __init__(self, ledger: Ledger | None, allowances: Allowances, reach: Reach, clock: Clock) -> None:
        self._ledger = ledger
        self._allowances = allowances
        self._reach = reach
        self._clock = clock
        self._flights: dict[str, asyncio.Task[None]] = {}

    def fly(self, name: str) -> asyncio.Task[None]:
        """One question at a time about each of them: who comes meanwhile waits for the next."""
        return self._flights.get(name) or self._flying([name])

    async def stop(self) -> None:
        """What this gateway held is free for others, if the ledger is there."""
        if self._ledger is None:
            return
        for flight in (flights := [*self._flights.values()]):
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
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
        """Each answer says who the ledger is: nobody waits for that before he says what he holds."""
        for first in range(0, len(names), _AT_ONCE):
            if self._reach.away:
                return
            if some := [name for name in names[first : first + _AT_ONCE] if name not in self._flights]:
                await self._flying(some, self._allowances.greeting())

    def _flying(self, names: list[str], *before: Ask) -> asyncio.Task[None]:
        task = asyncio.create_task(self._exchange(names, before))
        self._flights.update(dict.fromkeys(names, task))
        task.add_done_callback(lambda _: self._landed(names))
        return task

    def _landed(self, names: Iterable[str]) -> None:
        for name in names:
            self._flights.pop(name, None)

    async def _exchange(self, names: Iterable[str], before: Sequence[Ask]) -> None:
        await self._ask([*before, *self._allowances.asks(names, self._clock.now_s())])

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
