"""A ledger that a test holds up, and a tenant who asks for leases of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from services.gateway.core.allowance import Ask, Demand, Denial, Grant, Late, LeasePolicy, NeedsLease, Pass, Subject
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.io.limits_redis import LedgerAway
from services.gateway.leases import Ledger
from services.gateway.limits import Limits, LimitsMeans
from shared.messages.desired import Limits as Limited
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from tests.support.paper_ledger import PaperLedger

ONE = Demand(tokens=1)
TWO_REQUESTS = Limited(requests_per_min=2)


class Office:
    """A ledger that answers until it `hangs`, is `away` or `fails`; `opens` ends the first for all. `asked`: how much,
    each time; `most_at_once`: how many asked together."""

    def __init__(self, clock: ManualClock) -> None:
        self.hangs = self.away = self.fails = False
        self.opens = asyncio.Event()
        self.asked: list[int] = []
        self.most_at_once = 0
        self._under_way = 0
        self.paper = PaperLedger()
        self._clock = clock

    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        self.asked.append(len(asks))
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            return await self._answers(asks)
        finally:
            self._under_way -= 1

    async def _answers(self, asks: Sequence[Ask]) -> list[Grant]:
        if self.hangs:
            await self.opens.wait()
        if self.away:
            raise LedgerAway("planted")
        if self.fails:
            raise RuntimeError("planted")
        now_ms = int(self._clock.now_s() * 1000)
        return [self.paper.answer(msgspec.structs.replace(ask, now_ms=now_ms)) for ask in asks]

    async def close(self) -> None: ...


class Counter:
    """Where tenants ask, each of which may ask for two requests a minute if nothing else is said."""

    def __init__(
        self, limited: Limited = TWO_REQUESTS, places_wait_s: float = 0.002, ledger: Ledger | None = None
    ) -> None:
        self.clock = ManualClock()
        self.office = Office(self.clock)
        means = LimitsMeans(
            allowances=Allowances("g", LeasePolicy()), company=Company("g"), wait_s=0.001, places_wait_s=places_wait_s
        )
        self.metrics = Metrics("gateway")
        self.limits = Limits(ledger or self.office, means, self.clock, self.metrics)
        self._subject = Subject(name="tenant acme", limits=limited)

    async def ask(self, tenant: str = "acme") -> Pass | Denial:
        subject = msgspec.structs.replace(self._subject, name=f"tenant {tenant}")

        def decide(late: Late) -> Pass | Denial | NeedsLease:
            return self.limits.admit((subject,), ONE, late=late)

        return await self.limits.decided(decide)

    async def close(self) -> None:
        self.office.hangs = False
        self.office.opens.set()
        await self.limits.stop()
