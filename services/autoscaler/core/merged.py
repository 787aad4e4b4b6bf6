"""Customers who fill a replica by themselves, and the merged replicas that they get."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from services.autoscaler.core.demand import DemandPolicy, Tally, asked_tokens_per_s, demand_of, heard, of_adapter
from services.autoscaler.core.load import Demand
from shared.messages.activity import GatewayActivity
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey
from shared.messages.pools import base_of, merged_pool_id
from shared.messages.usage import BASE

Customers = Mapping[tuple[str, str], Tally]
"""What each adapter is asked for, by its pool (never a merged one) and its id."""

_QUIET_REQUESTS = 0.01
"""A fading sum of requests below this is forgotten."""


class MergedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    share: float = 1.0
    """Of one replica's token rate. Above it a customer fills a replica by itself, and merged weights save it 20 % of
    every step."""
    hold_s: float = 120.0
    """Starting a merged replica takes as long; what is over sooner was not worth one."""
    quiet_share: float = 0.6
    """Of `share`: below it the customer is quiet."""
    quiet_hold_s: float = 1_800.0
    """A replica is started and stopped for it at most twice an hour."""


class MergedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One customer's own pool. `since_s` is since when its traffic has been on the other side of the threshold:
    high before the pool is wanted, low once it is. `demand` is all that the customer asks for, wherever it is served.
    Without a `key` its adapter was retired while nobody looked, and what is left of the pool is to go, unless the
    adapter is back on record and asked for.
    """

    pool_id: str
    base_pool_id: str
    key: AdapterKey | None
    wanted: bool = False
    since_s: float | None = None
    demand: Demand = Demand()

    @property
    def over(self) -> bool:
        """Nobody wants it, now or soon."""
        return not self.wanted and self.since_s is None


def customers_after(
    customers: Customers, said: GatewayActivity, now_s: float, policy: DemandPolicy
) -> dict[tuple[str, str], Tally]:
    """What is known of customers after one more message; those who fell quiet are forgotten."""
    after = {who: tally for who, tally in customers.items() if not _quiet(tally, now_s, policy)}
    for pool_id, activity in said.pools.items():
        for adapter_id, one in activity.adapters.items():
            if adapter_id != BASE:
                who = (base_of(pool_id), adapter_id)
                after[who] = heard(after.get(who), of_adapter(one), said.interval_s, now_s, policy)
    return after


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for what, what a replica of each pool does, and what is on record about adapters."""

    customers: Customers
    rates: Mapping[str, float]
    records: Mapping[str, AdapterRecord]


def merged_pools(
    before: Mapping[str, MergedPool], market: Market, now_s: float, policy: MergedPolicy, windows: DemandPolicy
) -> dict[str, MergedPool]:
    """The merged pools that are wanted, about to be, or on their way out, by pool id. Whoever has the replicas of one
    that is no longer wanted lets them go, and then forgets it.
    """
    after: dict[str, MergedPool] = {}
    for (base_pool_id, adapter_id), tally in market.customers.items():
        record = market.records.get(adapter_id)
        if record is None or record.pool_id != base_pool_id:
            continue
        pool_id = merged_pool_id(base_pool_id, record.digest)
        known = before.get(pool_id)
        if known is None:
            rate = market.rates.get(base_pool_id, 0.0)
            if not rate or asked_tokens_per_s(tally, now_s, windows) < policy.share * rate:
                continue
            known = MergedPool(pool_id=pool_id, base_pool_id=base_pool_id, key=record.key)
        after[pool_id] = msgspec.structs.replace(known, key=record.key, demand=demand_of(tally, now_s, windows))
    silent = {name: msgspec.structs.replace(pool, demand=Demand()) for name, pool in before.items()}
    return {name: _judged(pool, market, now_s, policy) for name, pool in {**silent, **after}.items()}


def recalled(pool_id: str, record: AdapterRecord, *, wanted: bool) -> MergedPool:
    """A merged pool that was there before a restart."""
    return MergedPool(pool_id=pool_id, base_pool_id=record.pool_id, key=record.key, wanted=wanted)


def orphaned(pool_id: str) -> MergedPool:
    """A merged pool that was there before a restart, and whose adapter is no longer on record."""
    return MergedPool(pool_id=pool_id, base_pool_id=base_of(pool_id), key=None)


def _judged(pool: MergedPool, market: Market, now_s: float, policy: MergedPolicy) -> MergedPool:
    rate = market.rates.get(pool.base_pool_id, 0.0)
    gone = pool.key is None or market.records.get(pool.key.adapter_id) is None
    if gone or not rate:
        return msgspec.structs.replace(pool, wanted=pool.wanted and not gone, since_s=None)
    share = pool.demand.requests_per_s * pool.demand.tokens_per_request / rate
    beyond = share < policy.quiet_share * policy.share if pool.wanted else share >= policy.share
    if not beyond:
        return msgspec.structs.replace(pool, since_s=None)
    since_s = now_s if pool.since_s is None else pool.since_s
    held = now_s - since_s >= (policy.quiet_hold_s if pool.wanted else policy.hold_s)
    if not held:
        return msgspec.structs.replace(pool, since_s=since_s)
    return msgspec.structs.replace(pool, wanted=not pool.wanted, since_s=None)


def _quiet(tally: Tally, now_s: float, policy: DemandPolicy) -> bool:
    """Looked at for thousands of customers with every message of a gateway."""
    return tally.average.requests * math.exp((tally.at_s - now_s) / policy.average_s) < _QUIET_REQUESTS
