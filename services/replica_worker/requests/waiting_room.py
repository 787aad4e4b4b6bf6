"""Requests whose turn has not come, new ones and paused ones alike, and how much each customer has had."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from services.replica_worker.core.dispatch_view import Share, Waiting
from services.replica_worker.core.fairness import TokenCounters
from services.replica_worker.requests.running import Running
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey


@dataclass(eq=False)
class Ticket:
    """`turn` ends when the request may go to the engine."""

    running: Running
    record: AdapterRecord | None
    passed_over_since_s: float
    paused: bool = False
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def key(self) -> AdapterKey | None:
        return None if self.record is None else self.record.key

    def as_waiting(self) -> Waiting:
        """A request is charged for its prompt once."""
        return Waiting(
            request_id=self.running.request.request_id,
            tenant_id=self.running.request.tenant_id,
            key=self.key,
            tokens=0 if self.paused else self.running.prompt_tokens,
            passed_over_since_s=self.passed_over_since_s,
            paused=self.paused,
        )


class WaitingRoom:
    def __init__(self) -> None:
        self.counters = TokenCounters()
        self._tickets: dict[str, Ticket] = {}
        self._paused: Counter[AdapterKey] = Counter()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        """In the order of arrival; they may leave meanwhile."""
        return iter(list(self._tickets.values()))

    def __getitem__(self, request_id: str) -> Ticket:
        return self._tickets[request_id]

    @property
    def queued_tokens(self) -> int:
        """What was promised to those who wait."""
        return sum(ticket.running.promised for ticket in self._tickets.values())

    def oldest_s(self, now_s: float) -> float:
        """How long ago the first of those came who wait."""
        return now_s - min((ticket.running.arrived_at_s for ticket in self._tickets.values()), default=now_s)

    def shares(self, tenants: Iterable[str]) -> dict[str, Share]:
        return {each: Share(self.counters.of(each), self.counters.weight(each)) for each in tenants}

    @property
    def awaited(self) -> Collection[AdapterKey]:
        """Adapters that paused answers go on with, whenever that is looked at."""
        return self._paused.keys()

    @property
    def awaited_adapters(self) -> list[str]:
        """Of those who wait, in the order of their arrival."""
        return [ticket.key.adapter_id for ticket in self if ticket.key is not None]

    def enter(self, ticket: Ticket) -> None:
        request = ticket.running.request
        if ticket.paused and ticket.key is not None:
            self._paused[ticket.key] += 1
        self._tickets[request.request_id] = ticket
        self.counters.enter(request.tenant_id)

    def begin(self, ticket: Ticket, now_s: float) -> None:
        """It is its turn: whoever waits for the same adapter is not passed over, unless its answer stands still."""
        self._take_out(ticket)
        for other in self._tickets.values():
            if other.key == ticket.key and not other.paused:
                other.passed_over_since_s = now_s
        self.counters.charge(ticket.running.request.tenant_id, ticket.as_waiting().tokens)
        if not ticket.turn.done():
            ticket.turn.set_result(None)

    def leave(self, running: Running) -> None:
        """It has ended, if it waited. Idempotent."""
        ticket = self._tickets.get(running.request.request_id)
        if ticket is not None and ticket.running is running:
            self._take_out(ticket)

    def fail(self, failure: Exception, which: Callable[[Ticket], bool]) -> None:
        for ticket in self:
            if which(ticket):
                self._take_out(ticket)
                if not ticket.turn.done():
                    ticket.turn.set_exception(failure)
                    ticket.turn.exception()  # whoever waited may have left: then this is where it is looked at

    def _take_out(self, ticket: Ticket) -> None:
        del self._tickets[ticket.running.request.request_id]
        if ticket.paused and ticket.key is not None:
            self._paused[ticket.key] -= 1
            if not self._paused[ticket.key]:
                del self._paused[ticket.key]
        self.counters.leave(ticket.running.request.tenant_id)
