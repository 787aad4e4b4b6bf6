"""What the gateway knows of the replicas: members, last reports, residency, and what it sent since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from services.gateway.core.sends import Sends
from shared.messages.desired import Member, Membership, OwnerCount
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency, ResidencyView, fold_residency

DEFAULT_OWNERS = 2


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a pool that owns adapters, as routing weighs it. `load_tokens` and `requests` include
    what this gateway sent since the last report; `tier` is where the adapter in question is ("remote": not on
    the replica); `unusable` is why nothing may be sent there now, or empty."""

    replica_id: str
    pool_id: str
    incarnation: str
    weight: float
    load_tokens: int
    requests: int
    max_rows: int
    tier: str
    unusable: str = ""


class Fleet:
    """Folded from watches and telemetry; the times are the moments when this gateway heard something."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._memberships: dict[str, Membership] = {}
        self._owners: dict[str, OwnerCount] = {}
        self._reports: dict[str, ReplicaReport] = {}
        self._reported_at_s: dict[str, float] = {}
        self._heard_at_s: dict[str, float] = {}
        self._deaf_until_s = 0.0
        self._residency: dict[str, ResidencyView] = {}
        self._sends: dict[str, Sends] = {}

    def put_membership(self, pool_id: str, membership: Membership | None) -> None:
        if membership is None:
            self._memberships.pop(pool_id, None)
        elif (known := self._memberships.get(pool_id)) is None or membership.epoch >= known.epoch:
            self._memberships[pool_id] = membership

    def put_owner_count(self, pool_id: str, count: OwnerCount | None) -> None:
        if count is None:
            self._owners.pop(pool_id, None)
        else:
            self._owners[pool_id] = count

    def on_report(self, report: ReplicaReport, now_s: float) -> None:
        before = self._reports.get(report.replica_id)
        if before is not None and before.incarnation != report.incarnation:
            self._sends.pop(report.replica_id, None)
        self._reports[report.replica_id] = report
        self._reported_at_s[report.replica_id] = self._heard_at_s[report.replica_id] = now_s
        self.sends(report.replica_id).reported()

    def on_heard(self, replica_id: str, now_s: float) -> None:
        """Anything else that only a living replica says."""
        self._heard_at_s[replica_id] = now_s

    def on_deaf(self, now_s: float) -> None:
        """Nobody can be heard until now, so nobody's silence counts until now."""
        self._deaf_until_s = now_s

    def is_silent(self, replica_id: str, now_s: float) -> bool:
        """Whether a replica that must speak every second has not for too long."""
        heard_at_s = self._heard_at_s.get(replica_id, self._deaf_until_s)
        return now_s - max(heard_at_s, self._deaf_until_s) > self._fresh_s

    def on_residency(self, message: Residency, now_s: float) -> None:
        self.on_heard(message.replica_id, now_s)
        view = self._residency.get(message.replica_id, ResidencyView())
        self._residency[message.replica_id] = fold_residency(view, message)

    def forget_older_than(self, at_s: float) -> list[str]:
        """Drop what replicas said that have been silent since then, so that names which never come back
        take no memory. Returns their names."""
        gone = [name for name, heard_at_s in self._heard_at_s.items() if max(heard_at_s, self._deaf_until_s) < at_s]
        for name in gone:
            self._reports.pop(name, None)
            self._reported_at_s.pop(name, None)
            self._residency.pop(name, None)
            self._sends.pop(name, None)
            del self._heard_at_s[name]
        return gone

    def promised_tokens(self) -> dict[str, int]:
        """Per replica, what was sent and is in none of its reports yet."""
        return {name: sends.promised_tokens for name, sends in self._sends.items() if sends.promised_tokens}

    def sends(self, replica_id: str) -> Sends:
        return self._sends.setdefault(replica_id, Sends())

    def owners(self, pool_id: str, adapter: AdapterKey) -> int:
        count = self._owners.get(pool_id)
        return count.exceptions.get(adapter.adapter_id, count.owners) if count is not None else DEFAULT_OWNERS

    def candidates(self, pool_ids: Iterable[str], adapter: AdapterKey | None, now_s: float) -> tuple[Candidate, ...]:
        return tuple(self._candidates(pool_ids, adapter, now_s))

    def _candidates(self, pool_ids: Iterable[str], adapter: AdapterKey | None, now_s: float) -> Iterator[Candidate]:
        for pool_id in pool_ids:
            membership = self._memberships.get(pool_id)
            for member in membership.members if membership is not None else ():
                if member.weight > 0:
                    yield self._candidate(member, pool_id, adapter, now_s)

    def _candidate(self, member: Member, pool_id: str, adapter: AdapterKey | None, now_s: float) -> Candidate:
        replica_id = member.replica_id
        report = self._reports.get(replica_id)
        sends = self._sends.get(replica_id, Sends())
        running = report.running + report.queue_depth if report is not None else 0
        return Candidate(
            replica_id=replica_id,
            pool_id=pool_id,
            incarnation=report.incarnation if report is not None else "",
            weight=member.weight,
            load_tokens=max(0, (report.tokens_in_flight if report is not None else 0) + sends.tokens),
            requests=max(0, running + sends.requests),
            max_rows=report.max_rows if report is not None else 0,
            tier=self._tier(replica_id, report, adapter),
            unusable=self._unusable(member, report, now_s),
        )

    def _tier(self, replica_id: str, report: ReplicaReport | None, adapter: AdapterKey | None) -> str:
        view = self._residency.get(replica_id)
        if adapter is None or report is None or view is None or view.incarnation != report.incarnation:
            return "remote"
        return view.tiers.get(adapter, "remote")

    def _unusable(self, member: Member, report: ReplicaReport | None, now_s: float) -> str:
        if report is None:
            return "it has not reported yet"
        if now_s - self._reported_at_s[member.replica_id] > self._fresh_s:
            return f"its last report is older than {self._fresh_s:g} s"
        if report.draining or member.draining:
            return "it drains"
        if not report.ready:
            return f"it is not ready: {report.reason or 'no reason given'}"
        return "" if member.ready else "placement has not let it in yet"
