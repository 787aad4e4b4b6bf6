"""How busy each adapter is, coarsely enough that an assignment is rewritten for what lasts and not for noise.

A heat is a power of two of the request rate: 1 begins at `floor_per_s`, 2 at twice that, and so on. The rate is an
average that moves by `share` of the difference each time that heats are looked at (with the refresh of plans, once a
minute), and a heat follows it only once it is `margin` of a class beyond the class it is in. So what becomes busy is
hot with the next look, what was busy cools by a class in about seven, and a fleet that was down for an hour still
knows what to bring up first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.desired import AssignmentShard
from shared.messages.usage import PoolTraffic


class HeatPolicy(msgspec.Struct, frozen=True, kw_only=True):
    floor_per_s: float = 0.01
    """Rarer than one request in 100 s: no order worth keeping."""
    margin: float = 0.5
    share: float = 0.1


class PoolHeat(msgspec.Struct, frozen=True, kw_only=True):
    """`as_of_s` names the last message that counted; None: what an earlier placement had written. Who has no class is
    cold, who has no rate has none worth counting."""

    as_of_s: float | None
    rates_per_s: Mapping[str, float]
    classes: Mapping[str, int]


Heats = Mapping[str, PoolHeat]
"""By pool."""


def fold(heats: Heats, traffic: Iterable[PoolTraffic], policy: HeatPolicy) -> dict[str, PoolHeat]:
    """The heats after what traffic says now; a message that is known already changes nothing."""
    folded = dict(heats)
    for message in traffic:
        known = heats.get(message.pool_id)
        if known is None:
            folded[message.pool_id] = _classed(message.at_s, message.requests_per_s, {}, policy)
        elif known.as_of_s != message.at_s:
            rates = _averaged(known.rates_per_s, message.requests_per_s, policy)
            folded[message.pool_id] = _classed(message.at_s, rates, known.classes, policy)
    return folded


def recall(shards: Iterable[AssignmentShard], policy: HeatPolicy) -> dict[str, PoolHeat]:
    """As an earlier placement saw them when it last wrote: a restart of placement cools nothing."""
    classes: dict[str, dict[str, int]] = {}
    for shard in shards:
        for adapter in shard.adapters:
            if adapter.heat:
                classes.setdefault(shard.pool_id, {})[adapter.adapter_id] = adapter.heat
    return {
        pool_id: PoolHeat(
            as_of_s=None,
            rates_per_s={name: policy.floor_per_s * 2.0 ** (heat - 0.5) for name, heat in found.items()},
            classes=found,
        )
        for pool_id, found in classes.items()
    }


def by_adapter(heats: Heats) -> dict[str, int]:
    return {adapter_id: heat for pool in heats.values() for adapter_id, heat in pool.classes.items()}


def _averaged(before: Mapping[str, float], now: Mapping[str, float], policy: HeatPolicy) -> dict[str, float]:
    rates = {}
    for name in before.keys() | now.keys():
        rate = before.get(name, 0.0)
        rates[name] = rate + policy.share * (now.get(name, 0.0) - rate)
    return rates


def _classed(at_s: float, rates: Mapping[str, float], before: Mapping[str, int], policy: HeatPolicy) -> PoolHeat:
    counted = {name: rate for name, rate in rates.items() if rate > policy.floor_per_s / 16}
    classes = {name: _class(before.get(name), rate, policy) for name, rate in counted.items()}
    return PoolHeat(as_of_s=at_s, rates_per_s=counted, classes={name: heat for name, heat in classes.items() if heat})


def _class(before: int | None, rate_per_s: float, policy: HeatPolicy) -> int:
    level = 1.0 + math.log2(rate_per_s / policy.floor_per_s)
    if before is not None and before - policy.margin <= level < before + 1 + policy.margin:
        return before
    return max(0, math.floor(level))
