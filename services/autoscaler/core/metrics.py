"""The message that operators watch: the whole fleet at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.autoscaler.core.fold import HeardGateway, PoolLoad, SilencePolicy
from services.autoscaler.core.scale import PoolWish
from shared.messages.reports import FleetMetrics, PoolMetrics


def pool_metrics(load: PoolLoad, wish: PoolWish) -> PoolMetrics:
    return PoolMetrics(
        pool_id=load.pool_id,
        replicas=load.replicas,
        ready=load.ready,
        desired=wish.desired,
        reason=wish.reason,
        running=load.running,
        queue_depth=load.queue_depth,
        tokens_in_flight=load.tokens_in_flight,
        tokens_per_s=load.tokens_per_s,
        evictions_per_min=load.evictions_per_min,
    )


def live_gateways(heard: Iterable[HeardGateway], now_s: float, policy: SilencePolicy) -> list[HeardGateway]:
    return [gateway for gateway in heard if now_s - gateway.at_s <= policy.silent_after_s]


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
