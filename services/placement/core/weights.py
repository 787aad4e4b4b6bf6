"""How large a share of a pool's adapters each replica should own.

A replica's measure is the smallest of three: its slots and its RAM as multiples of the pool's median, and its tokens
per second. Where all GPUs of a pool are of a kind, or of kinds that do as much, those are the measured ones as a
multiple of the median; among several kinds they are a share of what the fastest does, and who has not measured any yet
is expected to do what its kind does. The weight is the nearest power of the square root of two between 1/4 and 4. What
is not known, or is 0 for a median, is left out. A weight in a report that is not 1 is an operator's word, and is taken
as it is.

Weights stay: another one is taken only when the measure has been more than `margin` of a step off for `hold_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from services.placement.core.membership import Seen, Standing
from shared.messages.desired import Membership

_LARGEST_STEP = 4


class WeightPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`rates` are tokens per second by kind of GPU in lower case, as multiples of what any other kind does."""

    margin: float = 0.75
    hold_s: float = 60.0
    rates: Mapping[str, float] = {}

    def rate_of(self, seen: Seen) -> float:
        return self.rates.get(seen.report.gpu_kind.lower(), 1.0) if seen.report else 1.0


class Weighed(msgspec.Struct, frozen=True):
    """`step` is the power of the square root of two; `off_since_s`: since when another would fit better."""

    step: int
    off_since_s: float | None = None

    @property
    def weight(self) -> float:
        return float(math.exp2(self.step / 2))


Weights = Mapping[str, Weighed]
"""By replica, of those that own adapters and of which no operator has said anything else."""


def recall(memberships: Iterable[Membership]) -> dict[str, Weighed]:
    """As an earlier placement had published them, so that its restart moves nothing."""
    return {
        member.replica_id: Weighed(round(2 * math.log2(member.weight)))
        for membership in memberships
        for member in membership.members
        if member.weight > 0
    }


def weigh(
    before: Weights, standings: Mapping[str, Standing], seen: Mapping[str, Seen], now_s: float, policy: WeightPolicy
) -> dict[str, Weighed]:
    pools: dict[str, list[str]] = {}
    for replica_id, standing in standings.items():
        if standing.owns and seen[replica_id].report is not None and standing.member.weight == 1.0:
            pools.setdefault(standing.pool_id, []).append(replica_id)
    weighed = {name: found for name, found in before.items() if name in standings}
    for members in pools.values():
        found = [seen[name] for name in members]
        slots = [float(each.told.slots) for each in found]
        memory = [float(each.told.ram_budget_bytes) for each in found]
        rates, usual_rate = _rates(found, policy)
        usual = _median(slots), _median(memory), usual_rate
        for name, own in zip(members, zip(slots, memory, rates, strict=True), strict=True):
            weighed[name] = _judged(before.get(name), _level(own, usual), now_s, policy)
    return weighed


def applied(standings: Mapping[str, Standing], seen: Mapping[str, Seen], weights: Weights) -> dict[str, Standing]:
    """The standings with these weights, where no operator has said another."""
    found = dict(standings)
    for name, weighed in weights.items():
        standing = standings.get(name)
        if standing is not None and standing.member.weight == 1.0 and weighed.step and seen[name].report is not None:
            member = msgspec.structs.replace(standing.member, weight=weighed.weight)
            found[name] = msgspec.structs.replace(standing, member=member)
    return found


def _rates(found: Sequence[Seen], policy: WeightPolicy) -> tuple[Sequence[float], float]:
    """Tokens per second of each, 0 if nobody knows, and how many count as 1."""
    measured = [seen.report.capacity_tokens_per_s if seen.report else 0.0 for seen in found]
    kinds = [policy.rate_of(seen) for seen in found]
    if len(set(kinds)) == 1:
        return measured, _median(measured)
    unit = _median([rate / kind for rate, kind in zip(measured, kinds, strict=True)]) or 1.0
    rates = [rate or unit * kind for rate, kind in zip(measured, kinds, strict=True)]
    return rates, max(rates)


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if value > 0]
    return median(known) if known else 0.0


def _level(own: Sequence[float], medians: Sequence[float]) -> float:
    """In steps."""
    ratios = [value / middle for value, middle in zip(own, medians, strict=True) if value > 0 and middle > 0]
    level = 2 * math.log2(min(ratios)) if ratios else 0.0
    return min(float(_LARGEST_STEP), max(-float(_LARGEST_STEP), level))


def _judged(before: Weighed | None, level: float, now_s: float, policy: WeightPolicy) -> Weighed:
    if before is None:
        return Weighed(round(level))
    if abs(level - before.step) <= policy.margin:
        return Weighed(before.step)
    since_s = now_s if before.off_since_s is None else before.off_since_s
    return Weighed(round(level)) if now_s - since_s >= policy.hold_s else Weighed(before.step, since_s)
