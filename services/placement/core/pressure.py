"""What is done about replicas that keep evicting: more owners for those who find no slot, or a wish for more replicas.

Evictions are the sign, and busy adapters say what would help: if the pool has slots enough for all of them, those that
find none on their owners get one more owner; if it has not, more owners would only move the trouble, and the
autoscaler is told how many replicas would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from services.placement.core.slots import Busy, Owners, wanted
from shared.messages.desired import PoolPressure


class ThrashPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A replica thrashes that has evicted more than `evictions_per_min` for `for_s`. It gets help for `lifts` adapters
    at a time, every `for_s`; an additional owner stays for `lift_s` after it was last asked for. A pressure ends when
    nobody has thrashed, or everybody would fit, for `calm_s`."""

    evictions_per_min: float = 60.0
    for_s: float = 5.0
    lifts: int = 8
    lift_s: float = 300.0
    calm_s: float = 60.0


class Lift(msgspec.Struct, frozen=True):
    """As many owners as this, until then."""

    owners: int
    until_s: float


class Thrash(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the evictions leaves for the next: since when each replica is above the threshold, when it was
    last helped, the additional owners, and the pressure with the time that it was last justified."""

    since_s: Mapping[str, float] = {}
    helped_at_s: Mapping[str, float] = {}
    lifts: Mapping[str, Lift] = {}
    pressure: PoolPressure | None = None
    justified_at_s: float = 0.0


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """The busy adapters of a pool, the slots that its replicas have, and who was given one; `evictions_per_min` by
    replica."""

    pool_id: str
    busy: tuple[Busy, ...]
    slots: Mapping[str, int]
    given: Mapping[str, Owners]
    evictions_per_min: Mapping[str, float]


def begins(thrash: Thrash, now_s: float, policy: ThrashPolicy) -> bool:
    """Whether a replica has thrashed for long enough and nothing has been done yet: time to see who is busy."""
    return any(now_s - at_s >= policy.for_s and name not in thrash.helped_at_s for name, at_s in thrash.since_s.items())


def looked_at(before: Thrash, crowd: Crowd, now_s: float, policy: ThrashPolicy) -> Thrash:
    since_s = {
        name: before.since_s.get(name, now_s)
        for name, rate in crowd.evictions_per_min.items()
        if rate > policy.evictions_per_min
    }
    thrashing = [name for name, at_s in since_s.items() if now_s - at_s >= policy.for_s]
    lifts = {name: lift for name, lift in before.lifts.items() if lift.until_s > now_s}
    helped = {name: at_s for name, at_s in before.helped_at_s.items() if name in since_s}
    pressure, justified_at_s = before.pressure, before.justified_at_s
    short_of = wanted(crowd.busy) - sum(crowd.slots.values()) if thrashing else 0
    if thrashing and short_of > 0:
        pressure, justified_at_s = _pressed(pressure, crowd, thrashing, now_s), now_s
    elif now_s - justified_at_s >= policy.calm_s:
        pressure = eased(pressure, now_s, "busy adapters fit their slots again, or nobody evicts")
    for name in thrashing:
        if now_s - helped.get(name, -math.inf) >= policy.for_s:
            lifts |= _help(name, crowd, lifts, now_s, policy) if short_of <= 0 else {}
            helped[name] = now_s
    return Thrash(
        since_s=since_s, helped_at_s=helped, lifts=lifts, pressure=pressure, justified_at_s=justified_at_s
    )  # fmt: skip


def _help(
    replica_id: str, crowd: Crowd, lifts: Mapping[str, Lift], now_s: float, policy: ThrashPolicy
) -> dict[str, Lift]:
    """One more owner for the hottest that this replica owns and nobody has a slot for; those that have one keep it."""
    helped: dict[str, Lift] = {}
    for one in sorted(crowd.busy, key=lambda one: (-one.heat, one.adapter_id)):
        if replica_id in one.owners and one.adapter_id in lifts:
            helped[one.adapter_id] = Lift(lifts[one.adapter_id].owners, now_s + policy.lift_s)
    waiting = _without_a_slot(replica_id, crowd)
    for one in sorted(waiting, key=lambda one: (-one.heat, one.adapter_id))[: policy.lifts]:
        helped[one.adapter_id] = Lift(len(one.owners) + 1, now_s + policy.lift_s)
    return helped


def _without_a_slot(replica_id: str, crowd: Crowd) -> Iterable[Busy]:
    return (
        one
        for one in crowd.busy
        if replica_id in one.owners and not crowd.given.get(one.adapter_id) and len(one.owners) < len(crowd.slots)
    )


def _pressed(before: PoolPressure | None, crowd: Crowd, thrashing: list[str], now_s: float) -> PoolPressure:
    """At most twice as many as there are: what is asked for beyond that can be asked for from there."""
    count, total, needed = len(crowd.slots), sum(crowd.slots.values()), wanted(crowd.busy)
    would_do = min(2 * count, math.ceil(needed * count / total)) if total else count + 1
    if before is not None and before.replicas >= would_do:
        return before
    return PoolPressure(
        pool_id=crowd.pool_id,
        replicas=would_do,
        reason=f"{needed} slots are wanted for busy adapters, {count} replicas have {total}, and "
        f"{', '.join(sorted(thrashing)[:3])} evict more than they should",
        at_s=now_s,
    )


def eased(before: PoolPressure | None, now_s: float, reason: str) -> PoolPressure | None:
    """Taken back, if anything was wished for."""
    if before is None or before.replicas == 0:
        return before
    return PoolPressure(pool_id=before.pool_id, replicas=0, reason=reason, at_s=now_s)
