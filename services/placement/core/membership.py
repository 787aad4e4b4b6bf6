"""Who belongs to a pool: reports folded into what is known of each replica, then judged by the clock.

A replica is *joining* until its first ready report, *ready* while reports say so, *restarting* when it
was ready before, *draining* when it or an operator says so, and *lost* once it has been silent. A lost
or restarting replica keeps its adapters for a grace, because moving hundreds of them costs more than
waiting for a process to come back; it is not routed to meanwhile. After the grace it is forgotten.
An *unfit* replica has a rank limit below its pool's: it would refuse adapters, so it gets none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.desired import Member, Membership
from shared.messages.reports import ReplicaReport

PHASES = ("joining", "ready", "restarting", "draining", "lost", "unfit")

_REMEMBERED_INCARNATIONS = 8


class MembershipPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`starting_grace_s` is longer than `lost_grace_s`: a replica that reports while it loads its base
    model is on its way back, one that says nothing may not be."""

    lost_after_s: float = 5.0
    lost_grace_s: float = 30.0
    starting_grace_s: float = 180.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one replica: `told` is its last word, and the times say how old that word is."""

    pool_id: str
    told: Member
    heard_at_s: float
    ready_at_s: float | None = None
    """When it was last known to be ready; None if it never was."""
    sequence: int = -1
    reason: str = ""
    superseded: tuple[str, ...] = ()
    """Earlier incarnations: a late report of one of them must not bring it back."""
    report: ReplicaReport | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement on one replica at one moment. `member` is what gateways are told."""

    replica_id: str
    pool_id: str
    phase: str
    owns: bool
    reason: str
    member: Member


def recall(membership: Membership, now_s: float) -> dict[str, Seen]:
    """What an earlier placement published, as if every member had just gone silent: each keeps its
    adapters for the grace, so that a restart of placement moves nothing."""
    return {
        member.replica_id: Seen(
            pool_id=membership.pool_id,
            told=msgspec.structs.replace(member, ready=False),
            heard_at_s=now_s,
            ready_at_s=now_s if member.weight > 0 else None,
            reason="not heard since placement started",
        )
        for member in membership.members
    }


def observe(seen: Seen | None, report: ReplicaReport, now_s: float) -> Seen:
    """What is known after one more report. Repeated and superseded reports change nothing; a new
    incarnation takes over its predecessor's place; another pool is a new beginning."""
    superseded: tuple[str, ...] = ()
    ready_at_s: float | None = None
    if seen is not None:
        if _is_old(seen, report):
            return seen
        superseded = _superseded(seen, report.incarnation)
        ready_at_s = seen.ready_at_s if seen.pool_id == report.pool_id else None
    return Seen(
        pool_id=report.pool_id,
        told=_member(report),
        heard_at_s=now_s,
        ready_at_s=now_s if report.ready else ready_at_s,
        sequence=report.sequence,
        reason=report.reason,
        superseded=superseded,
        report=report,
    )


def judge(seen: Seen, now_s: float, policy: MembershipPolicy, *, drained: bool, rank_class: int | None) -> Standing:
    """Where one replica stands. `drained` is an operator's order; `rank_class` is the pool's, if known."""
    phase, reason = _phase(seen, now_s, policy, drained)
    owns = phase in ("ready", "restarting", "lost") and not (drained or seen.told.draining)
    if owns and phase != "ready":
        owns = _within_grace(seen, now_s, policy)
    if rank_class is not None and seen.told.rank_limit < rank_class:
        reason = f"its rank limit {seen.told.rank_limit} is below the pool's {rank_class}"
        phase, owns = "unfit", False
    return Standing(
        replica_id=seen.told.replica_id,
        pool_id=seen.pool_id,
        phase=phase,
        owns=owns,
        reason=reason,
        member=msgspec.structs.replace(
            seen.told,
            ready=phase == "ready",
            draining=drained or seen.told.draining,
            weight=seen.told.weight if owns else 0.0,
        ),
    )


def is_forgotten(seen: Seen, now_s: float, policy: MembershipPolicy) -> bool:
    """Silent for longer than the grace: it no longer belongs to any pool."""
    return now_s - seen.heard_at_s > policy.lost_grace_s


def membership_of(pool_id: str, standings: Iterable[Standing], epoch: int, stored: Membership | None) -> Membership:
    """What gateways should know of a pool; `stored` itself if it already says that.

    A member that owns nothing has weight 0, so that ranking by the published weights gives every reader
    the owners that placement chose.
    """
    members = tuple(sorted((s.member for s in standings if s.pool_id == pool_id), key=lambda m: m.replica_id))
    if stored is not None and stored.epoch == epoch and stored.members == members:
        return stored
    revision = stored.revision + 1 if stored is not None else 1
    return Membership(pool_id=pool_id, epoch=epoch, revision=revision, members=members)


def owners_weights(standings: Mapping[str, Standing], pool_id: str) -> dict[str, float]:
    """The weights to rank a pool's adapters by."""
    return {s.replica_id: s.member.weight for s in standings.values() if s.pool_id == pool_id and s.owns}


def _phase(seen: Seen, now_s: float, policy: MembershipPolicy, drained: bool) -> tuple[str, str]:
    silent_s = now_s - seen.heard_at_s
    if silent_s > policy.lost_after_s:
        return "lost", f"no report for {silent_s:.1f} s"
    if drained or seen.told.draining:
        return "draining", "ordered to drain" if drained else "says it is draining"
    if seen.told.ready:
        return "ready", "its report says ready"
    phase = "joining" if seen.ready_at_s is None else "restarting"
    return phase, seen.reason or "its report says not ready"


def _within_grace(seen: Seen, now_s: float, policy: MembershipPolicy) -> bool:
    if seen.ready_at_s is None:
        return False
    return now_s - seen.heard_at_s <= policy.lost_grace_s and now_s - seen.ready_at_s <= policy.starting_grace_s


def _is_old(seen: Seen, report: ReplicaReport) -> bool:
    if report.incarnation == seen.told.incarnation:
        return report.sequence <= seen.sequence
    return report.incarnation in seen.superseded


def _superseded(seen: Seen, incarnation: str) -> tuple[str, ...]:
    if incarnation == seen.told.incarnation:
        return seen.superseded
    return (*seen.superseded, seen.told.incarnation)[-_REMEMBERED_INCARNATIONS:]


def _member(report: ReplicaReport) -> Member:
    return Member(
        replica_id=report.replica_id,
        incarnation=report.incarnation,
        weight=report.weight,
        slots=report.slots,
        rank_limit=report.rank_limit,
        ram_budget_bytes=report.ram_budget_bytes,
        disk_budget_bytes=report.disk_budget_bytes,
        ready=report.ready,
        draining=report.draining,
    )
