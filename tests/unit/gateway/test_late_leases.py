"""What is said to whoever is refused because the ledger did not answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from services.gateway.core.allowance import Ask, Demand, Denial, Grant, LeasePolicy, NeedsLease, Pass, Subject
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.limits import Limits, LimitsMeans
from shared.messages.desired import Limits as Limited
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from tests.support.paper_ledger import PaperLedger

ONE = Demand(tokens=1)


class Office:
    """A ledger that answers until it `hangs`."""

    def __init__(self, clock: ManualClock) -> None:
        self.hangs = False
        self.paper = PaperLedger()
        self._clock = clock

    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        if self.hangs:
            await asyncio.Event().wait()
        now_ms = int(self._clock.now_s() * 1000)
        return [self.paper.answer(msgspec.structs.replace(ask, now_ms=now_ms)) for ask in asks]

    async def close(self) -> None: ...


class Counter:
    """Where one tenant asks, which may ask for two requests a minute."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.office = Office(self.clock)
        means = LimitsMeans(allowances=Allowances("g", LeasePolicy()), company=Company("g"), wait_s=0.001)
        self.limits = Limits(self.office, means, self.clock, Metrics("gateway"))
        self._subject = Subject(name="tenant acme", limits=Limited(requests_per_min=2))

    async def ask(self) -> Pass | Denial:
        def decide(late: bool) -> Pass | Denial | NeedsLease:
            return self.limits.admit((self._subject,), ONE, late=late)

        return await self.limits.decided(decide)


@pytest.fixture
async def counter() -> AsyncIterator[Counter]:
    opened = Counter()
    yield opened
    opened.office.hangs = False
    await opened.limits.stop()


async def test_what_the_ledger_said_last_is_said_again(counter: Counter) -> None:
    assert isinstance(await counter.ask(), Pass)
    assert isinstance(await counter.ask(), Pass)
    told = await counter.ask()
    assert isinstance(told, Denial)
    assert told.retry_after_s == pytest.approx(61.0)
    await counter.clock.advance(20.0)
    counter.office.hangs = True
    late = await counter.ask()
    assert isinstance(late, Denial)
    assert late.retry_after_s == pytest.approx(41.0)


async def test_a_ledger_that_has_not_said_no_may_know_of_more_in_a_moment(counter: Counter) -> None:
    counter.office.hangs = True
    assert isinstance(await counter.ask(), Pass)
    assert isinstance(await counter.ask(), Pass)
    late = await counter.ask()
    assert isinstance(late, Denial)
    assert late.retry_after_s == 1.0
