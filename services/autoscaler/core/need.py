"""How many replicas a load needs, each measure with its own reason; the largest wins.

*Causes* say what arrives or must be held: they are believed while new replicas start. *Symptoms* say what the
replicas of now cannot do: they are not believed until the replicas that are coming have shown what they do, or one
shortage would be answered again and again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.autoscaler.core.load import Demand, PoolLoad
from services.autoscaler.core.memory import Pace
from services.autoscaler.core.policy import NeedPolicy
from services.autoscaler.core.roster import Roster


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """`replicas` is no whole number: by how much a number is missed is what rounding is decided by."""

    replicas: float
    reason: str


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    cause: Need
    symptom: Need
    short: Need
    """The cause as the last seconds show it."""
    sure: Need
    """The cause as the last seconds show it at least: of many noisy looks, the largest would win."""
    rows: Need
    """What the running requests take. It follows the demand by the length of a request, and is all rows while a queue
    is worked off: with the demand known, it keeps replicas and calls for none."""
    measured: float = 0.0
    """The demand alone, for the shape of the day."""
    queue_s: float = 0.0

    @property
    def largest(self) -> Need:
        return larger((self.cause, self.symptom, self.rows))


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the measures look at."""

    load: PoolLoad
    roster: Roster
    pace: Pace
    policy: NeedPolicy

    @property
    def capacity(self) -> float:
        """Tokens/s of those that serve and those that are coming."""
        serving = sum(replica.capacity_tokens_per_s or self.pace.rate for replica in self.roster.serving)
        return serving + self.pace.rate * self.roster.pending

    @property
    def demand(self) -> float:
        """Completion tokens/s that customers ask for, whether or not they get them."""
        return self.load.demand.requests_per_s * self.load.demand.tokens_per_request


NOTHING = Need(replicas=0.0, reason="nothing is asked for")


def needs_of(now: Situation, floor: Need = NOTHING) -> Needs:
    """Replicas for this load. `floor` is what the same time of day needed."""
    demand = now.load.demand
    asked = _by_demand(now, demand.requests_per_s - now.policy.sure_errors * demand.noise_per_s)
    is_sure, rows = asked is not NOTHING and not now.pace.rate_is_guess, _by_rows(now)
    short_sure = demand.requests_per_s_short - now.policy.sure_errors * demand.noise_per_s_short
    symptoms = [_by_queue(now), _by_tokens(now), _by_kv(now), _by_slots(now), _by_lateness(now)]
    if not is_sure:
        symptoms += [asked, rows]
    return Needs(
        cause=larger((asked if is_sure else NOTHING, _by_pressure(now.load), floor)),
        symptom=larger(symptoms),
        rows=rows,
        short=_by_demand(now, demand.requests_per_s_short) if is_sure else NOTHING,
        sure=_by_demand(now, short_sure) if is_sure else NOTHING,
        measured=asked.replicas if is_sure else 0.0,
        queue_s=queue_s(now),
    )


def larger(needs: Iterable[Need]) -> Need:
    return max(needs, key=lambda need: need.replicas)


def queue_s(now: Situation) -> float:
    """How long the waiting work would take, in seconds; 0 while no rate is known."""
    return queued_tokens(now) / now.capacity if now.capacity else 0.0


def queued_tokens(now: Situation) -> float:
    """The work that waits. What requests are allowed to produce is more than what they do, so the latter counts
    where it is known."""
    usual = now.load.demand.tokens_per_request
    allowed = sum(replica.queued_tokens for replica in now.roster.heard)
    waiting = sum(replica.queue_depth for replica in now.roster.heard)
    return min(allowed, waiting * usual) if usual else float(allowed)


def _by_demand(now: Situation, requests_per_s: float) -> Need:
    demand: Demand = now.load.demand
    if not (demand.heard and demand.tokens_per_request and now.pace.rate):
        return NOTHING
    tokens = requests_per_s * demand.tokens_per_request
    per_replica = now.policy.utilisation * now.pace.rate
    return Need(
        replicas=tokens / per_replica,
        reason=f"{tokens:.0f} tokens a second are asked for, at {per_replica:.0f} a replica",
    )


def _by_pressure(load: PoolLoad) -> Need:
    if not load.pressure_replicas:
        return NOTHING
    return Need(replicas=load.pressure_replicas, reason=f"placement: {load.pressure_reason}")


def _by_queue(now: Situation) -> Need:
    """Enough to stop the queue from growing and to work it off in time; none if it is short and stays so."""
    if not now.capacity:
        return NOTHING
    rising = max(0.0, now.load.demand.requests_per_s_short * now.load.demand.tokens_per_request - now.capacity)
    queued = queued_tokens(now) + rising * now.policy.ahead_s
    if queued / now.capacity <= now.policy.max_queue_s:
        return NOTHING
    # Without figures of what arrives, all that can be said is that those who serve are not enough.
    arriving = now.demand if now.load.demand.heard else now.pace.rate * len(now.roster.serving)
    return Need(
        replicas=(arriving + queued / now.policy.clear_s) / now.pace.rate,
        reason=f"{queued:.0f} queued tokens are {queued / now.capacity:.1f} s of work",
    )


def _by_rows(now: Situation) -> Need:
    rows = sum(replica.max_rows for replica in now.roster.serving)
    if not rows:
        return NOTHING
    per_replica = now.policy.row_utilisation * rows / len(now.roster.serving)
    return Need(
        replicas=now.pace.running / per_replica,
        reason=f"{now.pace.running:.0f} running requests at {per_replica:.0f} a replica",
    )


def _by_tokens(now: Situation) -> Need:
    usual = now.policy.tokens_in_flight_per_replica
    hold = [max(usual, replica.kv_total_tokens) for replica in now.roster.serving]
    per_replica = sum(hold) / len(hold) if hold else usual
    return Need(
        replicas=now.pace.held_tokens / per_replica,
        reason=f"{now.pace.held_tokens:.0f} tokens in flight at {per_replica:.0f} a replica",
    )


def _by_kv(now: Situation) -> Need:
    """By those that say how full their KV cache is. The others count for nothing, but keep their places once the former
    are too full."""
    telling = sum(replica.kv_total_tokens > 0 for replica in now.roster.heard)
    if not telling:
        return NOTHING
    filled, pressure = now.pace.kv_filled, now.policy.kv_pressure
    full_enough = filled / pressure > telling
    silent = sum(not replica.kv_total_tokens for replica in now.roster.serving) if full_enough else 0
    return Need(
        replicas=filled / pressure + silent,
        reason=f"{100 * filled / telling:.0f} % of the KV cache is in use, at {100 * pressure:.0f} % a replica",
    )


def _by_slots(now: Situation) -> Need:
    if now.pace.slots_share < now.policy.slot_pressure:
        return NOTHING
    return Need(
        replicas=len(now.roster.serving) + 1.0, reason=f"{100 * now.pace.slots_share:.0f} % of the slots are busy"
    )


def _by_lateness(now: Situation) -> Need:
    """One more, while the objective burns and it is for lack of replicas. A queue speaks for itself."""
    demand, policy = now.load.demand, now.policy
    burns = demand.late_share_short >= policy.late_burn * policy.late_share and demand.late_share >= policy.late_share
    if not burns or queue_s(now) > policy.max_queue_s or now.demand < policy.late_min_utilisation * now.capacity:
        return NOTHING
    return Need(
        replicas=len(now.roster.serving) + 1.0,
        reason=f"{100 * demand.late_share_short:.0f} % of the first tokens are late",
    )
