"""Answers to "what does the fleet look like" and "who owns this adapter"."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from services.placement.core.decide import Facts
from services.placement.core.membership import Standing, owners_weights
from services.placement.core.owners import owners_of
from services.placement.core.plan import PLACED_STATUSES, Held, ReplicaPlan
from shared.hashing import rank
from shared.messages.desired import OwnerCount
from shared.messages.identity import AdapterKey
from shared.messages.operations import AskOwners, FleetView, Owners, ReplicaSummary
from shared.messages.reports import ResidencyEntry

_LISTED_PER_REPLICA = 200
_LISTED_IN_ALL = 3_000
"""An entry takes at most 250 bytes, and the whole answer must stay below the bus's limit of 1 MB."""


def fleet_view(
    facts: Facts, standings: Mapping[str, Standing], plans: Mapping[str, ReplicaPlan], epoch: int
) -> FleetView:
    listed = min(_LISTED_PER_REPLICA, _LISTED_IN_ALL // max(1, len(standings)))
    replicas = tuple(
        _summary(facts, standing, plans.get(replica_id), listed) for replica_id, standing in sorted(standings.items())
    )
    return FleetView(epoch=epoch, replicas=replicas)


def owners_view(
    facts: Facts, standings: Mapping[str, Standing], counts: Mapping[str, OwnerCount], question: AskOwners
) -> Owners:
    """Who owns an adapter, or why nobody does."""
    record = facts.adapters.get(AdapterKey(adapter_id=question.adapter_id, digest=question.digest))
    if record is None or record.status not in PLACED_STATUSES:
        return Owners(replica_ids=(), reason=f"adapter {question.adapter_id} is not on record as verified")
    if record.pool_id != question.pool_id:
        return Owners(replica_ids=(), reason=f"adapter {question.adapter_id} belongs to pool {record.pool_id}")
    weights = owners_weights(standings, record.pool_id)
    if not weights:
        return Owners(replica_ids=(), reason=f"pool {record.pool_id} has no replica that can own adapters")
    count = counts.get(record.pool_id, OwnerCount(pool_id=record.pool_id))
    members = {replica_id: standings[replica_id].member for replica_id in weights}
    owners = owners_of(record, rank(record.adapter_id, weights), members, count)
    return Owners(replica_ids=owners, reason=f"first {len(owners)} of {len(weights)} by rendezvous hash")


def _summary(facts: Facts, standing: Standing, plan: ReplicaPlan | None, listed: int) -> ReplicaSummary:
    seen = facts.seen[standing.replica_id]
    report = seen.report
    held = facts.held.get(standing.replica_id, {})
    tiers = list(held.values())
    return ReplicaSummary(
        replica_id=standing.replica_id,
        pool_id=standing.pool_id,
        ready=standing.member.ready,
        draining=standing.member.draining,
        reason=f"{standing.phase}: {standing.reason}",
        slots=standing.member.slots,
        running=report.running if report else 0,
        queue_depth=report.queue_depth if report else 0,
        tokens_in_flight=report.tokens_in_flight if report else 0,
        assigned=len(plan.adapters) if plan else 0,
        gpu=tiers.count("gpu"),
        ram=tiers.count("ram"),
        disk=tiers.count("disk"),
        adapters=_entries(held, listed),
        report_age_s=round(facts.real_s - seen.heard_at_s, 3),
        kv_used_tokens=report.kv_used_tokens if report else 0,
        kv_total_tokens=report.kv_total_tokens if report else 0,
        warming=report.warming if report else False,
        to_warm=report.to_warm if report else 0,
        gpu_kind=report.gpu_kind if report else "",
    )


def _entries(held: Held, listed: int) -> tuple[ResidencyEntry, ...]:
    """The fastest tiers first: "disk" < "gpu" < "ram" is not an order anybody wants."""
    order = {"gpu": 0, "ram": 1, "disk": 2}
    ranked = sorted(held.items(), key=lambda item: (order.get(item[1], 3), item[0]))
    return tuple(
        ResidencyEntry(adapter_id=key.adapter_id, digest=key.digest, tier=tier) for key, tier in islice(ranked, listed)
    )
