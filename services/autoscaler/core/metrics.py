"""The message that operators watch: the whole fleet at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.autoscaler.core.cost import CostPolicy, usd_per_hour, usd_per_million_tokens
from services.autoscaler.core.fold import HeardGateway
from services.autoscaler.core.load import PoolLoad, ReplicaLoad
from services.autoscaler.core.memory import PoolDecision
from services.autoscaler.core.policy import SilencePolicy
from services.autoscaler.core.roster import silent_for_s
from shared.messages.reports import FleetMetrics, PoolMetrics
from shared.ttft_by_customer import TtftView

MOST_SLOW = 10


def pool_metrics(
    load: PoolLoad, decision: PoolDecision, now_s: float, silence: SilencePolicy, cost: CostPolicy
) -> PoolMetrics:
    """Sums are over the replicas that are heard; a silent one still is a replica, and still costs."""
    ages = [(replica, silent_for_s(replica, now_s)) for replica in load.replicas.values()]
    heard = [replica for replica, age_s in ages if age_s <= silence.silent_after_s]
    known = frozenset(replica.replica_id for replica, age_s in ages if age_s <= silence.lost_after_s)
    there = len(known if load.existing is None else load.existing | {replica.replica_id for replica in heard})
    usd = usd_per_hour(there, cost)
    return PoolMetrics(
        pool_id=load.pool_id,
        replicas=there,
        ready=_serving(heard),
        desired=decision.desired,
        reason=decision.reason,
        running=sum(replica.running for replica in heard),
        queue_depth=sum(replica.queue_depth for replica in heard),
        tokens_in_flight=sum(replica.tokens_in_flight for replica in heard),
        tokens_per_s=sum(replica.tokens_per_s for replica in heard),
        evictions_per_min=sum(replica.evictions_per_min for replica in heard),
        pending=decision.pending,
        queue_s=decision.queue_s,
        capacity_tokens_per_s=decision.capacity_tokens_per_s,
        late_share=load.demand.late_share,
        usd_per_hour=usd,
        usd_per_million_tokens=usd_per_million_tokens(usd, _tokens_per_s(load, heard)),
        kv_used_tokens=sum(replica.kv_used_tokens for replica in heard if replica.kv_total_tokens),
        kv_total_tokens=sum(replica.kv_total_tokens for replica in heard),
    )


def fleet_metrics(
    pools: Mapping[str, PoolMetrics],
    gateways: Iterable[HeardGateway],
    silent: tuple[str, ...],
    *,
    at_s: float,
    sequence: int,
) -> FleetMetrics:
    """`gateways` are those that are heard now; `at_s` is the wall clock's."""
    streams = [gateway.report.streams for gateway in gateways]
    return FleetMetrics(
        at_s=at_s,
        sequence=sequence,
        pools=tuple(pools[pool_id] for pool_id in sorted(pools)),
        gateways=len(streams),
        streams=sum(streams),
        replicas_silent=silent,
    )


def with_customers(fleet: FleetMetrics, seen: TtftView) -> FleetMetrics:
    """Those who wait longest are told by name."""
    return msgspec.structs.replace(
        fleet, customers=seen.customers, customers_late=seen.late, slowest=seen.named[:MOST_SLOW]
    )


def _serving(heard: list[ReplicaLoad]) -> int:
    """Those that warm serve only while there are no others."""
    able = [replica for replica in heard if replica.ready and not replica.draining]
    return sum(not replica.warming for replica in able) or len(able)


def _tokens_per_s(load: PoolLoad, heard: list[ReplicaLoad]) -> float:
    """Over the last minutes, as gateways count them; of this moment, where none does."""
    if load.demand.heard:
        return load.demand.tokens_per_s
    return sum(replica.tokens_per_s for replica in heard)
