"""One replica as this gateway knows it, and its seats in the pools that count on it."""

from __future__ import annotations

import math
from typing import Protocol

from services.gateway.core.sends import Sends
from shared.messages.desired import Member
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, ResidencyView


class Replica:
    """Its last report and residency, and what was sent to it since; `seats` has one for each membership that names
    it. `load_tokens` and `requests` are the report's with what this gateway sent and saw end since then. A report
    counts for `fresh_s`."""

    def __init__(self, replica_id: str, fresh_s: float) -> None:
        self.replica_id = replica_id
        self.seats: list[Seat] = []
        self.fresh_s = fresh_s
        self.load_tokens = self.requests = self.max_rows = 0
        self.forget()

    def forget(self) -> None:
        """All that it said, and what was sent to it."""
        self.report: ReplicaReport | None = None
        self.fresh_until_s = -math.inf
        self.fresh = False
        self.residency = ResidencyView()
        self.sends = Sends(self.weigh)
        self.weigh()
        self.review()

    def tell(self, report: ReplicaReport, now_s: float) -> None:
        """A new incarnation knows nothing of what was sent to the one before."""
        if self.report is not None and self.report.incarnation != report.incarnation:
            self.sends = Sends(self.weigh)
        self.report, self.fresh, self.fresh_until_s = report, True, now_s + self.fresh_s
        self.sends.reported()
        self.review()

    def grow_stale(self) -> None:
        """Its last report counts no longer."""
        self.fresh = False
        self.review()

    @property
    def incarnation(self) -> str:
        return self.report.incarnation if self.report is not None else ""

    def tier(self, adapter: AdapterKey | None) -> str:
        """Where it holds the adapter; what an earlier incarnation held is gone."""
        if adapter is None or self.report is None or self.residency.incarnation != self.report.incarnation:
            return "remote"
        return self.residency.tiers.get(adapter, "remote")

    def weigh(self) -> None:
        report = self.report
        if report is not None:
            load_tokens = max(0, report.tokens_in_flight + self.sends.tokens)
            requests = max(0, report.running + report.queue_depth + self.sends.requests)
            max_rows = report.max_rows
        else:
            load_tokens, requests, max_rows = max(0, self.sends.tokens), max(0, self.sends.requests), 0
        more = (load_tokens - self.load_tokens, requests - self.requests, max_rows - self.max_rows)
        self.load_tokens, self.requests, self.max_rows = load_tokens, requests, max_rows
        for seat in self.seats:
            seat.load_tokens = load_tokens
            if seat.usable:
                seat.pool.on_weighed(*more)

    def review(self) -> None:
        for seat in self.seats:
            seat.review()


class Count(Protocol):
    """The pool that a seat is in."""

    @property
    def pool_id(self) -> str: ...

    def on_able(self, seat: Seat) -> None:
        """Whether the seat is able, or whether it warms, has changed: the pool says who is usable."""

    def on_weighed(self, load_tokens: int, requests: int, max_rows: int) -> None:
        """A usable seat has so many more than before."""


class Seat:
    """A replica's place in one pool. `able`: nothing speaks against it; `warming`: it would rather be spared for now;
    `usable`: it may be sent requests like any other. `load_tokens` are the replica's."""

    __slots__ = (
        "able", "draining", "load_tokens", "pool", "ready", "replica", "replica_id", "usable", "warming", "weight",
    )  # fmt: skip

    def __init__(self, pool: Count, replica: Replica) -> None:
        self.pool = pool
        self.replica = replica
        self.replica_id = replica.replica_id
        self.load_tokens = replica.load_tokens
        self.weight = 0.0
        self.ready = self.draining = self.able = self.warming = self.usable = False
        replica.seats.append(self)

    def put(self, member: Member) -> None:
        """What placement says of it now."""
        if member.weight != self.weight:
            self._become(able=False, warming=False)
        self.weight, self.ready, self.draining = member.weight, member.ready, member.draining
        self.review()

    def leave(self) -> None:
        """The membership names it no longer."""
        self.replica.seats.remove(self)
        self._become(able=False, warming=False)

    def review(self) -> None:
        report = self.replica.report
        self._become(able=not self.against(), warming=report is not None and report.warming)

    def against(self) -> str:
        """Why nothing may be sent there now, or nothing."""
        report = self.replica.report
        if report is None:
            return "it has not reported yet"
        if not self.replica.fresh:
            return f"its last report is older than {self.replica.fresh_s:g} s"
        if report.draining or self.draining:
            return "it drains"
        if not report.ready:
            return f"it is not ready: {report.reason or 'no reason given'}"
        return "" if self.ready else "placement has not let it in yet"

    def _become(self, *, able: bool, warming: bool) -> None:
        if (able, warming) != (self.able, self.warming):
            self.able, self.warming = able, warming
            self.pool.on_able(self)
