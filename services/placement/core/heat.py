"""How busy each adapter is, coarsely enough that an assignment is rewritten for what lasts and not for noise.

A heat is a power of two of the request rate: 1 begins at `floor_per_s`, 2 at twice that, and so on. Two know the rate.
The registry tells an hour's windows: of them an average is kept that moves by `share` of the difference each time that
heats are looked at (with the refresh of plans, once a minute). The gateways tell what is asked for now, and theirs is
the word that counts as far as they have been heard: `heard` of the rate is theirs, and what they had no time to see yet
is the registry's. A heat follows only once it is `margin` of a class beyond the class it is in. So what becomes busy is
hot with the next look, and a fleet that was down for an hour still knows what to bring up first.
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


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The requests per second of the gateways' long memory, and how much of it has been heard, 0 to 1."""

    rates_per_s: Mapping[str, float] = {}
    heard: float = 0.0


def fold(
    heats: Heats, traffic: Iterable[PoolTraffic], policy: HeatPolicy, live: Mapping[str, Live] | None = None
) -> dict[str, PoolHeat]:
    """The heats after what is said now; a message of the registry's that is known already counts once."""
    told = {message.pool_id: message for message in traffic}
    lives = live or {}
    return {
        pool_id: _folded(heats.get(pool_id), told.get(pool_id), lives.get(pool_id, Live()), policy)
        for pool_id in heats.keys() | told.keys() | lives.keys()
    }


def _folded(known: PoolHeat | None, message: PoolTraffic | None, live: Live, policy: HeatPolicy) -> PoolHeat:
    rates, as_of_s = (known.rates_per_s, known.as_of_s) if known else ({}, None)
    if message is not None and (known is None or as_of_s != message.at_s):
        as_of_s = message.at_s
        rates = _averaged(rates, message.requests_per_s, policy) if known else message.requests_per_s
    counted = {name: rate for name, rate in rates.items() if rate > policy.floor_per_s / 16}
    return PoolHeat(
        as_of_s=as_of_s, rates_per_s=counted, classes=_classes(_merged(counted, live), known, policy)
    )  # fmt: skip


def _merged(rates: Mapping[str, float], live: Live) -> dict[str, float]:
    return {
        name: live.rates_per_s.get(name, 0.0) + (1.0 - live.heard) * rates.get(name, 0.0)
        for name in rates.keys() | live.rates_per_s.keys()
    }


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


def _averaged(before: Mapping[str, float], now: Mapping[str, float], policy: HeatPolicy) -> dict[str, float]:
    rates = {}
    for name in before.keys() | now.keys():
        rate = before.get(name, 0.0)
        rates[name] = rate + policy.share * (now.get(name, 0.0) - rate)
    return rates


def _classes(rates: Mapping[str, float], known: PoolHeat | None, policy: HeatPolicy) -> dict[str, int]:
    before = known.classes if known else {}
    found = {name: class_of(before.get(name), rate, policy) for name, rate in rates.items()}
    return {name: heat for name, heat in found.items() if heat}


def class_of(before: int | None, rate_per_s: float, policy: HeatPolicy) -> int:
    """The class of a rate, for one who was in the class `before`."""
    if rate_per_s <= 0:
        return 0
    level = 1.0 + math.log2(rate_per_s / policy.floor_per_s)
    if before is not None and before - policy.margin <= level < before + 1 + policy.margin:
        return before
    return max(0, math.floor(level))
