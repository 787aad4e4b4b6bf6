"""How busy adapters are, as placement is told: coarse figures, so that they change only when something has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.pools import is_merged
from shared.messages.usage import MOST_BUSY, PoolTraffic

_DIGITS = 2


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one adapter in one pool."""

    pool_id: str
    adapter_id: str
    requests: int


def pool_traffic(counted: Iterable[Counted], span_s: float, now_s: float) -> list[PoolTraffic]:
    """For every pool the rates of its busiest adapters over `span_s`, the busiest first. A merged pool has but one
    adapter, and nothing to choose from."""
    pools: dict[str, list[Counted]] = {}
    for one in counted:
        if not is_merged(one.pool_id):
            pools.setdefault(one.pool_id, []).append(one)
    return [
        PoolTraffic(pool_id=pool_id, at_s=now_s, requests_per_s=_busiest(pools[pool_id], span_s))
        for pool_id in sorted(pools)
    ]


def news(found: Iterable[PoolTraffic], told: Mapping[str, PoolTraffic]) -> list[PoolTraffic]:
    """What placement does not know yet. Of a pool that is not among `found` nothing was heard, so what was told
    stands: after an outage it says who comes first."""
    return [one for one in found if one.pool_id not in told or _differs(one, told[one.pool_id])]


def rounded(rate: float) -> float:
    """To two significant digits."""
    if rate <= 0.0:
        return 0.0
    return round(rate, _DIGITS - 1 - math.floor(math.log10(rate)))


def _busiest(counted: list[Counted], span_s: float) -> dict[str, float]:
    first = sorted(counted, key=lambda one: (-one.requests, one.adapter_id))[:MOST_BUSY]
    return {one.adapter_id: rounded(one.requests / span_s) for one in first}


def _differs(one: PoolTraffic, other: PoolTraffic) -> bool:
    return dict(one.requests_per_s) != dict(other.requests_per_s)
