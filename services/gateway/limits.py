"""Holds requests within their limits: asks the ledger ahead of them where it can, and does without where it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from services.gateway.core.allowance import Demand, Denial, Late, NeedsLease, Pass, Subject
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.leases import Leases, Ledger
from services.gateway.reach import Reach
from shared.messages.reports import GatewayReport
from shared.messages.usage import UsageRecord
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics

TURN_S = 0.5

D = TypeVar("D")


class LimitsMeans(msgspec.Struct, frozen=True, kw_only=True):
    """No request waits longer than `wait_s` for the ledger, or `places_wait_s` where it lacks a place for a stream: of
    those another gateway may hold all, and nobody can say so but the ledger."""

    allowances: Allowances
    company: Company
    wait_s: float
    places_wait_s: float


class _Open(msgspec.Struct, kw_only=True):
    """A request under way: how many of its calls still are, and what the others came to."""

    admitted: Pass
    calls: int
    tokens: int = 0


class Limits:
    """A part. While the ledger is away nobody waits for it: each gateway goes by its own share, until the ledger
    answers a question of `turn` again."""

    def __init__(self, ledger: Ledger | None, means: LimitsMeans, clock: Clock, metrics: Metrics) -> None:
        self._means = means
        self._allowances = means.allowances
        self._alone = ledger is None
        self._clock = clock
        self._reach = Reach(means.company, clock, metrics, configured=ledger is not None)
        self._leases = Leases(ledger, means.allowances, self._reach, clock)
        self._open: dict[str, _Open] = {}
        self._denied = metrics.counter("limit_refusals_total", "Requests refused by a limit, by its kind.", ["kind"])
        self._late = metrics.counter("limit_waits_total", "Requests that waited for a lease, by its coming.", ["came"])

    async def start(self) -> None:
        """The first request that has limits looks for the ledger, or the first turn after it."""

    async def stop(self) -> None:
        """What this gateway held is free for others, if the ledger is there."""
        await self._leases.stop()

    def admit(self, subjects: Sequence[Subject], demand: Demand, *, late: Late) -> Pass | Denial | NeedsLease:
        """Who is let in holds what he asked for until `settle` or `release`."""
        if self._alone and subjects:
            self._reach.say_alone()
        decision = self._allowances.admit(subjects, demand, self._clock.now_s(), alone=self._reach.away, late=late)
        if isinstance(decision, Denial):
            self._denied.labels(decision.kind).inc()
        return decision

    def rest(self, admitted: Pass) -> Mapping[str, str]:
        """Headers that say what is left. More is asked for where that is little. In the same turn as `admit`, and
        after whatever is more urgent."""
        rest = self._allowances.rest(admitted, self._clock.now_s())
        for name in rest.refill:
            self._leases.fly(name)
        return rest.headers

    def begin(self, call_ids: Sequence[str], admitted: Pass) -> None:
        """The request of this is under way, with a call for each answer."""
        if admitted.spent:
            self._open.update(dict.fromkeys(call_ids, _Open(admitted=admitted, calls=len(call_ids))))

    def settle(self, usage: UsageRecord) -> None:
        """A call has ended, and the request with its last one. Does nothing for one without limits."""
        self._end(usage.call_id, usage.prompt_tokens + usage.completion_tokens)

    def settled_after(self, record: Callable[[UsageRecord], None]) -> Callable[[UsageRecord], None]:
        """What is to be told of each call that ends: `record` first, and whatever fails at that, it is settled."""

        def ended(usage: UsageRecord) -> None:
            try:
                record(usage)
            finally:
                self.settle(usage)

        return ended

    def release(self, call_ids: Sequence[str]) -> None:
        """Nothing came of a request that has begun: each of its calls ends that has not, with no tokens."""
        for call_id in call_ids:
            self._end(call_id, 0)

    def _end(self, call_id: str, tokens: int) -> None:
        """Once: who ends again is not known any more."""
        if (request := self._open.pop(call_id, None)) is None:
            return
        request.tokens += tokens
        request.calls -= 1
        if request.calls:
            return
        for name in self._allowances.settle(request.admitted, request.tokens, self._clock.now_s()):
            if not self._reach.away:
                self._leases.fly(name)

    async def decided(self, decide: Callable[[Late], D | NeedsLease]) -> D:
        """What `decide` comes to with the leases that it needs. It is told for what it is too late to wait."""
        decision = decide(Late.IN_TIME)
        if not isinstance(decision, NeedsLease):
            return decision
        began_s, late = asyncio.get_running_loop().time(), Late.IN_TIME
        while isinstance(decision, NeedsLease):
            late = await self._waited(decision, began_s)
            decision = decide(late)
        self._late.labels("late" if late else "in_time").inc()
        return decision

    async def _waited(self, needs: NeedsLease, began_s: float) -> Late:
        """A ledger that turns out to be away has answered, too. Whoever has no time left is late whatever comes: a
        question that fails at once would be asked for ever."""
        most_s = max(self._means.wait_s, self._means.places_wait_s) if needs.places else self._means.wait_s
        left_s = began_s + most_s - asyncio.get_running_loop().time()
        flights = [self._leases.fly(name) for name in needs.subjects]
        _, pending = await asyncio.wait(flights, timeout=max(0.0, left_s))
        if not pending and left_s > 0:
            return Late.IN_TIME
        return Late.PLACES if needs.places else Late.MINUTES

    def on_report(self, report: GatewayReport) -> None:
        self._means.company.heard(report.gateway_id, self._clock.now_s())

    async def turn(self) -> None:
        """The leases are looked after, several times a second."""
        now_s = self._clock.now_s()
        self._allowances.gateways(self._means.company.count(now_s))
        await self._leases.turn(self._allowances.names(now_s))
