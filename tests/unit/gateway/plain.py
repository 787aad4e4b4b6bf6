"""Routing as one would write it down without a thought for speed: everything is kept as it was said, and every question
looks at everything anew. What the gateway does is compared with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from services.gateway.core.question import Question, RoutingPolicy
from shared.hashing import rank
from shared.messages.desired import Membership, OwnerCount
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency, ResidencyView, fold_residency


class Facts(NamedTuple):
    """One member of a pool, as it stands at the moment of a question."""

    replica_id: str
    pool_id: str
    weight: float
    load: int
    sent: int
    """Of the load, what its last report does not count."""
    requests: int
    rows: int
    tier: str
    able: bool
    warming: bool
    usable: bool = False


class PlainFleet:
    def __init__(self, fresh_s: float) -> None:
        self.fresh_s = fresh_s
        self.memberships: dict[str, Membership] = {}
        self.owner_counts: dict[str, OwnerCount] = {}
        self.reports: dict[str, tuple[ReplicaReport, float]] = {}
        self.views: dict[str, ResidencyView] = {}
        self.requests: dict[str, list[tuple[str, int, str]]] = {}
        """By replica: each request with its tokens and where it stands: sent, answered, counted, or ended."""
        self.sent_ever: dict[str, int] = {}
        self.alone_until_s: dict[tuple[str, AdapterKey], float] = {}

    def put_membership(self, pool_id: str, membership: Membership | None) -> None:
        known = self.memberships.get(pool_id)
        if membership is None:
            self.memberships.pop(pool_id, None)
        elif known is None or membership.epoch >= known.epoch:
            self.memberships[pool_id] = membership

    def put_owner_count(self, pool_id: str, count: OwnerCount) -> None:
        self.owner_counts[pool_id] = count

    def on_report(self, report: ReplicaReport, now_s: float) -> None:
        name = report.replica_id
        if name in self.reports and self.reports[name][0].incarnation != report.incarnation:
            self.requests[name] = []
            self.sent_ever[name] = 0
            self.alone_until_s = {pair: at_s for pair, at_s in self.alone_until_s.items() if pair[0] != name}
        self.reports[name] = (report, now_s)
        standing = self.requests.get(name, [])
        self.requests[name] = [
            (request, tokens, "counted" if where == "answered" else where)
            for request, tokens, where in standing
            if where != "ended"
        ]

    def on_residency(self, message: Residency, now_s: float) -> None:
        name = message.replica_id
        before = self.views.get(name, ResidencyView())
        self.views[name] = fold_residency(before, message)
        for entry in message.entries if self.views[name] is not before else ():
            if entry.tier == "gpu":
                key = AdapterKey(adapter_id=entry.adapter_id, digest=entry.digest)
                self.alone_until_s.pop((name, key), None)

    def quarantine(self, name: str, adapter: AdapterKey, until_s: float) -> None:
        self.alone_until_s[name, adapter] = until_s

    def sent(self, name: str, request: str, tokens: int) -> None:
        self.requests.setdefault(name, []).append((request, tokens, "sent"))
        self.sent_ever[name] = self.sent_ever.get(name, 0) + 1

    def answered(self, name: str, request: str) -> None:
        self._turn(name, request, {"sent": "answered"})

    def ended(self, name: str, request: str) -> None:
        self._turn(name, request, {"sent": "never", "answered": "never", "counted": "ended"})

    def _turn(self, name: str, request: str, becomes: dict[str, str]) -> None:
        self.requests[name] = [
            (each, tokens, becomes.get(where, where) if each == request else where)
            for each, tokens, where in self.requests.get(name, [])
        ]

    def facts(self, pool_ids: Iterable[str], adapter: AdapterKey | None, now_s: float) -> list[Facts]:
        found = []
        for pool_id in pool_ids:
            membership = self.memberships.get(pool_id)
            for member in membership.members if membership else ():
                if member.weight <= 0:
                    continue
                name = member.replica_id
                report, at_s = self.reports.get(name, (None, 0.0))
                standing = self.requests.get(name, [])
                added = [tokens for _, tokens, where in standing if where in ("sent", "answered")]
                ended = [tokens for _, tokens, where in standing if where == "ended"]
                said = report.tokens_in_flight if report else 0
                said_requests = report.running + report.queue_depth if report else 0
                view = self.views.get(name)
                known = adapter is not None and report is not None and view and view.incarnation == report.incarnation
                able = report is not None and member.ready and report.ready and now_s <= at_s + self.fresh_s
                found.append(
                    Facts(
                        replica_id=name,
                        pool_id=pool_id,
                        weight=member.weight,
                        load=max(0, said + sum(added) - sum(ended)),
                        sent=sum(added),
                        requests=max(0, said_requests + len(added) - len(ended)),
                        rows=report.max_rows if report else 0,
                        tier=view.tiers.get(adapter, "remote") if known and view and adapter else "remote",
                        able=able and not (report is not None and report.draining) and not member.draining,
                        warming=report is not None and report.warming,
                    )
                )
        warm = {each.pool_id for each in found if each.able and not each.warming}
        return sorted(each._replace(usable=each.able and not (each.warming and each.pool_id in warm)) for each in found)


def plain_route(
    fleet: PlainFleet, question: Question, policy: RoutingPolicy, now_s: float, draw: float
) -> tuple[str, str] | None:
    """The replica and the rule."""
    found = _plain_route(fleet, question, policy, now_s, draw)
    if found is None or found[1] in ("spill_warming", "warming_owner") or not fleet.reports[found[0]][0].warming:
        return found
    return found[0], "warming"


def _plain_route(
    fleet: PlainFleet, question: Question, policy: RoutingPolicy, now_s: float, draw: float
) -> tuple[str, str] | None:
    tokens, adapter = question.tokens, question.adapter
    members = fleet.facts(question.pool_ids, adapter, now_s)
    everybody = [facts for facts in members if facts.usable]

    def after(facts: Facts) -> float:
        return (facts.load + tokens) / facts.weight

    def may(facts: Facts) -> bool:
        alone_until_s = fleet.alone_until_s.get((facts.replica_id, adapter), 0.0) if adapter else 0.0
        return facts.usable and facts.replica_id not in question.tried and now_s >= alone_until_s

    merged = [
        facts for facts in fleet.facts(question.merged_pool_ids, adapter, now_s) if may(facts) and facts.tier == "gpu"
    ]
    free = [facts for facts in merged if facts.requests < facts.rows]
    if free:
        return min(free, key=after).replica_id, "merged"
    contenders = [facts for facts in everybody if may(facts)]
    full = policy.bounded and sum(facts.requests for facts in everybody) >= sum(facts.rows for facts in everybody)
    spared = [facts._replace(usable=True) for facts in members if facts.able and not facts.usable]
    spared = [facts for facts in spared if may(facts) and (not contenders or facts.requests < facts.rows)]
    if spared and (full or not contenders):
        return _plain_spared(fleet, question, spared), "spill_warming" if contenders else "warming"
    if not contenders:
        return (min(merged, key=after).replica_id, "merged_full") if merged else None
    lightest = min(contenders, key=after)
    busy = sum(facts.requests for facts in everybody) > policy.spill_above * sum(facts.rows for facts in everybody)
    mean = (sum(facts.load for facts in everybody) + tokens) / sum(facts.weight for facts in everybody)
    fit = [f for f in contenders if not (policy.bounded and busy) or after(f) <= policy.bound * mean]
    if spared and policy.strategy == "affinity" and adapter is not None:
        at_home = _plain_at_home(fleet, question, policy, fit)
        if home := [facts for facts in spared if facts.replica_id in at_home]:
            return _plain_spared(fleet, question, home), "warming_owner"
    if policy.strategy == "affinity" and adapter is None:
        return lightest.replica_id, "base"
    if not fit:
        return lightest.replica_id, "overloaded"
    if policy.strategy == "random":
        return fit[int(draw * len(fit))].replica_id, "random"
    if policy.strategy == "round_robin":
        turn = sum(fleet.sent_ever.get(facts.replica_id, 0) for facts in everybody)
        return fit[turn % len(fit)].replica_id, "round_robin"
    if policy.strategy == "least_loaded":
        return min(fit, key=after).replica_id, "least_loaded"
    assert adapter is not None
    return _plain_affinity(fleet, question, policy, fit)


def _plain_spared(fleet: PlainFleet, question: Question, spared: list[Facts]) -> str:
    if question.adapter is None:
        return min(spared, key=lambda facts: (facts.load + question.tokens) / facts.weight).replica_id
    weights = {member.replica_id: member.weight for member in fleet.memberships[question.pool_ids[0]].members}
    order = rank(question.adapter.adapter_id, weights)
    return min(spared, key=lambda facts: (facts.tier != "gpu", order.index(facts.replica_id))).replica_id


def _plain_at_home(fleet: PlainFleet, question: Question, policy: RoutingPolicy, fit: list[Facts]) -> list[str]:
    """The owners, if the request had to be fetched for by a stranger."""
    order, count = _plain_ranking(fleet, question)
    at_hand = [facts for facts in fit if facts.tier in ("gpu", "ram")]
    if any(facts.replica_id in order[:count] for facts in fit):
        return []
    return [] if any(not policy.bounded or facts.requests < facts.rows for facts in at_hand) else order[:count]


def _plain_ranking(fleet: PlainFleet, question: Question) -> tuple[list[str], int]:
    """Everybody by rank, and how many are owners."""
    assert question.adapter is not None
    [pool_id] = question.pool_ids
    count = fleet.owner_counts.get(pool_id, OwnerCount(pool_id=pool_id))
    weights = {member.replica_id: member.weight for member in fleet.memberships[pool_id].members}
    order = rank(question.adapter.adapter_id, weights)
    return order, count.exceptions.get(question.adapter.adapter_id, count.owners)


def _plain_affinity(fleet: PlainFleet, question: Question, policy: RoutingPolicy, fit: list[Facts]) -> tuple[str, str]:
    tokens = question.tokens

    def after(facts: Facts) -> float:
        return (facts.load + tokens) / facts.weight

    order, owner_count = _plain_ranking(fleet, question)
    own = order[:owner_count]
    owners = sorted(
        (facts for facts in fit if facts.replica_id in own), key=lambda facts: order.index(facts.replica_id)
    )
    roomy = [facts for facts in fit if not policy.bounded or facts.requests < facts.rows]
    if any(facts in roomy for facts in owners):
        return _plain_among([facts for facts in owners if facts in roomy], policy, tokens)
    for tier, rule in (("gpu", "spill_resident"), ("ram", "spill_ram")):
        holders = [facts for facts in roomy if facts.tier == tier]
        if holders:
            return min(holders, key=after).replica_id, rule
    short = [facts for facts in owners if facts.requests - facts.rows < policy.spill_waiting]
    if short:
        return min(short, key=lambda facts: facts.requests - facts.rows).replica_id, "queue"
    if policy.overflow == "next" and any(facts.replica_id not in own for facts in roomy):
        names = [facts.replica_id for facts in roomy]
        return next(name for name in order[owner_count:] if name in names), "spill_next"
    if policy.overflow == "least_loaded" and roomy:
        return min(roomy, key=after).replica_id, "spill_lightest"
    if owners:
        return _plain_among(owners, policy, tokens)
    resident = [facts for facts in fit if facts.tier == "gpu"]
    if resident:
        return min(resident, key=after).replica_id, "spill_resident"
    if policy.overflow == "next":
        names = [facts.replica_id for facts in fit]
        return next(name for name in order[owner_count:] if name in names), "spill_next"
    return min(fit, key=after).replica_id, "spill_lightest"


def _plain_among(owners: list[Facts], policy: RoutingPolicy, tokens: int) -> tuple[str, str]:
    def after(facts: Facts) -> float:
        return (facts.load + tokens) / facts.weight

    tier, rule = next(
        (tier, rule)
        for tier, rule in (("gpu", "resident"), ("ram", "ram"), ("", "first"))
        if not tier or any(facts.tier == tier for facts in owners)
    )
    holders = [facts for facts in owners if facts.tier == tier or not tier]
    best = min(holders, key=lambda facts: after(facts) + facts.sent / facts.weight) if tier == "gpu" else holders[0]
    lightest = min(owners, key=after)
    if after(best) - after(lightest) > max(policy.margin_tokens, round(policy.margin_requests * tokens)):
        return lightest.replica_id, "margin"
    return best.replica_id, rule
