"""One pool's wish from one moment to the next: fast up, slow down, and patient with what is starting."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.fold import PoolLoad
from services.autoscaler.core.need import Need, NeedPolicy, Pace, need_of, queue_s


class ScalePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`start_deadline_s` is how long a replica may take to become ready; until then it is counted as if it
    were, or a queue that grows meanwhile would be answered again and again."""

    need: NeedPolicy = NeedPolicy()
    min_replicas: int = 1
    max_replicas: int = 40
    growth: float = 2.0
    """A raise at most doubles the wish: a queue that built up says more about the past than about the load,
    and the next look, with the new replicas at work, knows better."""
    up_cooldown_s: float = 15.0
    down_cooldown_s: float = 300.0
    start_deadline_s: float = 180.0
    rate_half_life_s: float = 600.0
    growth_half_life_s: float = 5.0


class PoolWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool should have, why, and what deciding again needs to remember."""

    pool_id: str
    desired: int
    reason: str
    at_s: float = 0.0
    pace: Pace = Pace()
    queued_tokens: float | None = None
    queue_s: float = 0.0
    raised_at_s: float | None = None
    pending_at_s: float | None = None
    """When something was last on its way: from then on the pool shows what it can do."""
    low_since_s: float | None = None
    """Since when less than `desired` would have been enough, without interruption."""


def first_wish(load: PoolLoad, now_s: float, policy: ScalePolicy) -> PoolWish:
    """To begin with, what is there is what is wanted."""
    found = load.ready + load.starting
    return PoolWish(
        pool_id=load.pool_id,
        desired=_within(found, policy),
        reason=f"{found} replicas were there when the autoscaler began",
        at_s=now_s,
    )


def remembered_wish(pool_id: str, desired: int, now_s: float) -> PoolWish:
    """What an earlier autoscaler wished. Its replicas may still be starting, so they count as pending."""
    return PoolWish(
        pool_id=pool_id, desired=desired, reason="as wished before the restart", at_s=now_s, raised_at_s=now_s
    )


def on_tick(wish: PoolWish, load: PoolLoad, now_s: float, policy: ScalePolicy) -> PoolWish:
    """The wish after one more look at the load."""
    pace = _pace(wish, load, now_s, policy)
    pending = pending_replicas(wish, load, now_s, policy)
    seen = msgspec.structs.replace(
        wish,
        at_s=now_s,
        pace=pace,
        queued_tokens=load.queued_tokens,
        queue_s=queue_s(load, pace.rate, load.ready + pending),
        pending_at_s=now_s if pending else wish.pending_at_s,
    )
    if not load.ready:
        return msgspec.structs.replace(seen, low_since_s=None, reason=_blind(load))
    need = need_of(load, pace, load.ready + pending, policy.need)
    wanted = _within(min(need.replicas, math.floor(policy.growth * wish.desired)), policy)
    if wanted > wish.desired:
        return _up(seen, need, wanted, pending, policy)
    if wanted < wish.desired:
        return _down(seen, need, policy)
    return msgspec.structs.replace(seen, low_since_s=None, reason=need.reason)


def pending_replicas(wish: PoolWish, load: PoolLoad, now_s: float, policy: ScalePolicy) -> int:
    """Replicas that report but are not ready, and those wished lately that do not even report yet."""
    young = wish.raised_at_s is not None and now_s - wish.raised_at_s < policy.start_deadline_s
    return max(load.starting, wish.desired - load.ready if young else 0)


def _up(seen: PoolWish, need: Need, wanted: int, pending: int, policy: ScalePolicy) -> PoolWish:
    seen = msgspec.structs.replace(seen, low_since_s=None)
    if pending:
        return msgspec.structs.replace(seen, reason=f"{need.reason}; {pending} replicas are still starting")
    if seen.pending_at_s is not None and seen.at_s - seen.pending_at_s < policy.up_cooldown_s:
        reason = f"{need.reason}; the last new replica is ready for less than {policy.up_cooldown_s:g} s"
        return msgspec.structs.replace(seen, reason=reason)
    return msgspec.structs.replace(seen, desired=wanted, reason=need.reason, raised_at_s=seen.at_s)


def _down(seen: PoolWish, need: Need, policy: ScalePolicy) -> PoolWish:
    """One at a time: each removal moves adapters, and the next look shows whether it was one too many."""
    since_s = seen.at_s if seen.low_since_s is None else seen.low_since_s
    if seen.at_s - since_s < policy.down_cooldown_s:
        reason = f"{max(need.replicas, policy.min_replicas)} would do, for {seen.at_s - since_s:.0f} s so far"
        return msgspec.structs.replace(seen, low_since_s=since_s, reason=reason)
    return msgspec.structs.replace(
        seen,
        desired=seen.desired - 1,
        low_since_s=seen.at_s,
        reason=f"one less has been enough for {policy.down_cooldown_s:g} s",
    )


def _pace(wish: PoolWish, load: PoolLoad, now_s: float, policy: ScalePolicy) -> Pace:
    """Only busy replicas show what they can do; an idle pool forgets it slowly, as models and load change."""
    passed_s = now_s - wish.at_s
    faded = wish.pace.rate * math.pow(0.5, passed_s / policy.rate_half_life_s)
    rate = max(faded, load.busy_tokens_per_s / load.busy if load.busy else 0.0)
    if wish.queued_tokens is None or passed_s <= 0:
        return Pace(rate=rate)
    growth = (load.queued_tokens - wish.queued_tokens) / passed_s
    kept = math.pow(0.5, passed_s / policy.growth_half_life_s)
    return Pace(rate=rate, queue_growth=kept * wish.pace.queue_growth + (1.0 - kept) * growth)


def _blind(load: PoolLoad) -> str:
    if load.starting:
        return f"{load.starting} replicas are still starting"
    return "no replica reports as ready, so nothing is known about the load"


def _within(replicas: int, policy: ScalePolicy) -> int:
    return min(max(replicas, policy.min_replicas), policy.max_replicas)
