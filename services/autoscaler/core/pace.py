"""Averages over some seconds, and the token rate of a replica: its own word where it gives one."""

from __future__ import annotations

import math

from services.autoscaler.core.load import ReplicaLoad
from services.autoscaler.core.memory import Pace
from services.autoscaler.core.policy import NeedPolicy
from services.autoscaler.core.roster import Roster


def paced(before: Pace, roster: Roster, expected_rate: float, now_s: float, policy: NeedPolicy) -> Pace:
    """The averages after one more look. `expected_rate` stands in until a replica has shown what it does."""
    passed_s = math.inf if before.at_s is None else now_s - before.at_s
    kept = _kept(passed_s, policy)
    rate, is_guess = _rate(before, roster, passed_s, policy)
    slots = sum(replica.slots for replica in roster.serving)
    busy = sum(replica.slots_busy for replica in roster.serving)
    return Pace(
        at_s=now_s,
        rate=rate or expected_rate,
        rate_is_guess=is_guess and rate > 0.0,
        running=_mix(before.running, sum(replica.running for replica in roster.heard), kept),
        held_tokens=_mix(before.held_tokens, sum(_held_tokens(replica) for replica in roster.heard), kept),
        slots_share=_mix(before.slots_share, busy / slots if slots else 0.0, kept),
        kv_filled=_mix(before.kv_filled, sum(replica.kv_share for replica in roster.heard), kept),
    )


def capacity_of(roster: Roster, rate: float) -> float:
    """Tokens/s of those that serve; `rate` for those that do not say."""
    return sum(replica.capacity_tokens_per_s or rate for replica in roster.serving)


def _rate(before: Pace, roster: Roster, passed_s: float, policy: NeedPolicy) -> tuple[float, bool]:
    """What replicas say of themselves, averaged. Without their word, what was known; else the best that a busy one was
    seen to do, slowly forgotten, as models and load change: that is a guess (True)."""
    said = [replica.capacity_tokens_per_s for replica in roster.serving if replica.capacity_tokens_per_s > 0]
    was_known = before.rate > 0.0 and not before.rate_is_guess
    if said:
        mean = sum(said) / len(said)
        return _mix(before.rate if was_known else mean, mean, _kept(passed_s, policy)), False
    busy = [replica.tokens_per_s for replica in roster.serving if _is_busy(replica)]
    if was_known and not busy:
        return before.rate, False
    return max([before.rate * math.pow(0.5, passed_s / policy.rate_half_life_s), *busy]), True


def _is_busy(replica: ReplicaLoad) -> bool:
    """With all rows taken it shows what it can do. One that waits beside free rows waits for something else: the
    weights of an adapter, room for its tokens."""
    return replica.running >= replica.max_rows if replica.max_rows else replica.queue_depth > 0


def _held_tokens(replica: ReplicaLoad) -> int:
    """Of what runs: those are the tokens that must be held in memory."""
    return replica.tokens_in_flight - replica.queued_tokens


def _kept(passed_s: float, policy: NeedPolicy) -> float:
    return math.exp(-passed_s / policy.average_s)


def _mix(before: float, now: float, kept: float) -> float:
    return kept * before + (1.0 - kept) * now
