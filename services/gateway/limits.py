"""Holds requests within their limits: asks the ledger ahead of them where it can, and does without where it is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from services.gateway.core.allowance import Ask, Demand, Denial, Grant, NeedsLease, Pass, Subject
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.io.limits_redis import LedgerAway
from services.gateway.reach import Reach
from shared.messages.reports import GatewayReport
from shared.messages.usage import UsageRecord
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics

TURN_S = 0.5
_AT_ONCE = 200
_UNHEARD_S = 1.0
"""When whoever was refused before the ledger had answered may come again, if it did not say before that all is used."""
_LAST_S = 1.0
"""For a gateway that ends."""

D = TypeVar("D")


class Ledger(Protocol):
    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        """Raises LedgerAway."""

    async def close(self) -> None: ...


class LimitsMeans(msgspec.Struct, frozen=True, kw_only=True):
    """No request waits longer than `wait_s` for the ledger."""

    allowances: Allowances
    company: Company
    wait_s: float


class _Open(msgspec.Struct, kw_only=True):
    """A request under way: how many of its calls still are, and what the others came to."""

    admitted: Pass
    calls: int
    tokens: int = 0


class Limits:
    """A part. While the ledger is away nobody waits for it: each gateway goes by its own share, until the ledger
    answers a question of `turn` again."""

    def __init__(self, ledger: Ledger | None, means: LimitsMeans, clock: Clock, metrics: Metrics) -> None:
        self._allowances = means.allowances
        self._company = means.company
        self._wait_s = means.wait_s
        self._ledger = ledger
        self._clock = clock
        self._reach = Reach(means.company, clock, metrics, configured=ledger is not None)
        self._open: dict[str, _Open] = {}
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._denied = metrics.counter("limit_refusals_total", "Requests refused by a limit, by its kind.", ["kind"])
        self._late = metrics.counter("limit_waits_total", "Requests that waited for a lease, by its coming.", ["came"])

    async def start(self) -> None:
        """The first request that has limits looks for the ledger, or the first turn after it."""

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

    def admit(self, subjects: Sequence[Subject], demand: Demand, *, late: bool) -> Pass | Denial | NeedsLease:
        """`late`: it has waited for a lease as long as it may."""
        decision = self._allowances.admit(subjects, demand, self._clock.now_s(), alone=late or self._reach.away)
        if isinstance(decision, Denial):
            self._denied.labels(decision.kind).inc()
            if late and not self._reach.away:  # the ledger knows better than the share, or may in a moment
                unheard_s = min(decision.retry_after_s, _UNHEARD_S)
                wait_s = decision.foretold_s if decision.foretold_s is not None else unheard_s
                return msgspec.structs.replace(decision, retry_after_s=wait_s)
        if self._ledger is None and subjects:
            self._reach.say_alone()
        return decision

    def rest(self, admitted: Pass) -> Mapping[str, str]:
        """Headers that say what is left. More is asked for where that is little. In the same turn as `admit`, and
        after whatever is more urgent."""
        rest = self._allowances.rest(admitted, self._clock.now_s())
        for name in rest.refill:
            self._fly(name)
        return rest.headers

    def begin(self, call_ids: Sequence[str], admitted: Pass) -> None:
        """The request of this is under way, with a call for each answer."""
        if admitted.spent:
            self._open.update(dict.fromkeys(call_ids, _Open(admitted=admitted, calls=len(call_ids))))

    def settle(self, usage: UsageRecord) -> None:
        """A call has ended, and the request with its last one. Does nothing for one without limits."""
        if (request := self._open.pop(usage.call_id, None)) is None:
            return
        request.tokens += usage.prompt_tokens + usage.completion_tokens
        request.calls -= 1
        if request.calls:
            return
        for name in self._allowances.settle(request.admitted, request.tokens, self._clock.now_s()):
            if not self._reach.away:
                self._fly(name)

    async def decided(self, decide: Callable[[bool], D | NeedsLease]) -> D:
        """What `decide` comes to with the leases that it needs. It is told whether it is too late to wait for any."""
        decision = decide(False)
        if not isinstance(decision, NeedsLease):
            return decision
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        while isinstance(decision, NeedsLease):
            decision = decide(not await self._leased(decision, until_s - loop.time()))
        return decision

    async def _leased(self, needs: NeedsLease, wait_s: float) -> bool:
        """Whether it came in time."""
        _, pending = await asyncio.wait([self._fly(name) for name in needs.subjects], timeout=max(0.0, wait_s))
        self._late.labels("late" if pending else "in_time").inc()
        return not pending

    def on_report(self, report: GatewayReport) -> None:
        self._company.heard(report.gateway_id, self._clock.now_s())

    async def turn(self) -> None:
        """Give back what nobody used, keep what is used, and look whether the ledger is there again. One that has
        forgotten everything is to hear of it from those as well whom nobody asks anything just now."""
        now_s = self._clock.now_s()
        self._allowances.gateways(self._company.count(now_s))
        names = self._allowances.names(now_s)
        if self._ledger is None:
            return
        if self._reach.away or names:
            await self._ask([self._allowances.greeting()])
        for first in range(0, len(names), _AT_ONCE):
            if self._reach.away:
                return
            if some := [name for name in names[first : first + _AT_ONCE] if name not in self._flights]:
                await self._flying(some)

    def _fly(self, name: str) -> asyncio.Task[None]:
        """One question at a time about each of them: who comes meanwhile waits for the next."""
        return self._flights.get(name) or self._flying([name])

    def _flying(self, names: list[str]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._exchange(names))
        self._flights.update(dict.fromkeys(names, task))
        task.add_done_callback(lambda _: self._landed(names))
        return task

    def _landed(self, names: Iterable[str]) -> None:
        for name in names:
            self._flights.pop(name, None)

    async def _exchange(self, names: Iterable[str]) -> None:
        await self._ask(self._allowances.asks(names, self._clock.now_s()))

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
