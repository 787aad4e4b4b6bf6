"""The last word of everybody, folded into the load of each pool at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.autoscaler.core.demand import DemandPolicy, Tally, demand_of
from services.autoscaler.core.load import PoolLoad, ReplicaLoad
from services.autoscaler.core.policy import SilencePolicy
from shared.messages.desired import PoolPressure
from shared.messages.reports import GatewayReport, ReplicaReport


class HeardReplica(msgspec.Struct, frozen=True, kw_only=True):
    report: ReplicaReport
    at_s: float


class HeardGateway(msgspec.Struct, frozen=True, kw_only=True):
    report: GatewayReport
    at_s: float


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the fleet. `weights` are those of the memberships, `held` the replicas that a person
    ordered to drain, `tallies` what customers ask each pool for."""

    replicas: Mapping[str, HeardReplica] = {}
    weights: Mapping[str, float] = {}
    held: frozenset[str] = frozenset()
    pressures: Mapping[str, PoolPressure] = {}
    tallies: Mapping[str, Tally] = {}


def newer(before: HeardReplica | None, report: ReplicaReport, now_s: float) -> HeardReplica:
    """What is known after one more report; one that was heard before is no sign of life."""
    same = before is not None and before.report.incarnation == report.incarnation
    if before is not None and same and report.sequence <= before.report.sequence:
        return before
    return HeardReplica(report=report, at_s=now_s)


def loads(facts: Facts, now_s: float, policy: DemandPolicy) -> dict[str, PoolLoad]:
    """The load of every pool that somebody reports of, as far as the bus knows it."""
    pools: dict[str, dict[str, ReplicaLoad]] = {}
    for replica_id, heard in facts.replicas.items():
        pools.setdefault(heard.report.pool_id, {})[replica_id] = replica_load(heard, facts.weights.get(replica_id))
    return {pool_id: pool_load(pool_id, replicas, facts, now_s, policy) for pool_id, replicas in pools.items()}


def pool_load(
    pool_id: str, replicas: Mapping[str, ReplicaLoad], facts: Facts, now_s: float, policy: DemandPolicy
) -> PoolLoad:
    pressure = facts.pressures.get(pool_id)
    return PoolLoad(
        pool_id=pool_id,
        replicas=replicas,
        held=facts.held,
        demand=demand_of(facts.tallies.get(pool_id), now_s, policy),
        pressure_replicas=pressure.replicas if pressure else 0,
        pressure_reason=pressure.reason if pressure else "",
    )


def replica_load(heard: HeardReplica, weight: float | None = None) -> ReplicaLoad:
    report = heard.report
    return ReplicaLoad(
        replica_id=report.replica_id,
        heard_at_s=heard.at_s,
        ready=report.ready,
        draining=report.draining,
        warming=report.warming,
        running=report.running,
        queue_depth=report.queue_depth,
        tokens_in_flight=report.tokens_in_flight,
        queued_tokens=queued_tokens(report),
        tokens_per_s=report.tokens_per_s,
        capacity_tokens_per_s=report.capacity_tokens_per_s,
        evictions_per_min=report.evictions_per_min,
        slots=report.slots,
        slots_busy=report.slots_busy,
        max_rows=report.max_rows,
        kv_used_tokens=report.kv_used_tokens,
        kv_total_tokens=report.kv_total_tokens,
        weight=report.weight if weight is None else weight,
    )


def queued_tokens(report: ReplicaReport) -> int:
    """What a replica's waiting requests have been promised; of one that does not say, their share of its tokens."""
    requests = report.running + report.queue_depth
    if report.queued_tokens or not requests:
        return report.queued_tokens
    return report.tokens_in_flight * report.queue_depth // requests


def silent_replicas(heard: Mapping[str, HeardReplica], now_s: float, policy: SilencePolicy) -> tuple[str, ...]:
    """Who was heard once and is not heard now; who is lost is no longer named."""
    return tuple(
        replica_id
        for replica_id, replica in sorted(heard.items())
        if policy.silent_after_s < now_s - replica.at_s <= policy.lost_after_s
    )


def live_gateways(heard: Iterable[HeardGateway], now_s: float, policy: SilencePolicy) -> list[HeardGateway]:
    return [gateway for gateway in heard if now_s - gateway.at_s <= policy.silent_after_s]
