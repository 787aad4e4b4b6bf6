"""How many owners adapters need for their traffic: up at once, down step by step and only after a while.

Counts are steps: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on, each a third or a half more than the one before. The rate of a
customer is a few answers in a few seconds, so it is never nearer to the truth than by a tenth or two, and a count that
follows it owner by owner moves with the noise: every move is a plan made anew for each of those owners, and another
message to each of them. From step to step it takes more than noise, both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from services.placement.core.membership import Seen
from services.placement.core.rates import Rate
from shared.messages.desired import Member


class NeedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """An owner should have at most `target_share` of what a replica can do of one customer's traffic: about what a busy
    replica has free, so that a customer's rise finds room. Where slots are scarce it has to make do with owners that
    give it `slot_share` each. The next step down must have been enough for `hold_s`, with as much to spare that it
    fills only `spare` of those that stay."""

    target_share: float = 0.15
    slot_share: float = 0.7
    tokens_per_s: float = 640.0
    """Taken for what a replica can do until one has measured it."""
    hold_s: float = 180.0
    spare: float = 0.9


class Need(msgspec.Struct, frozen=True):
    """`heat` is how busy the adapter was when it came to this count, or came down to it."""

    owners: int
    heat: int = 0
    less_since_s: float | None = None


Needs = Mapping[str, Need]
"""By adapter id; who is not named needs one owner for its traffic."""


def share_tokens_per_s(members: Mapping[str, Member], seen: Mapping[str, Seen], policy: NeedPolicy) -> float:
    """What one owner should serve of one adapter: of what the middle one of the ready replicas can do."""
    reports = (seen[name].report for name, member in members.items() if member.ready)
    known = [each.capacity_tokens_per_s for each in reports if each is not None and each.capacity_tokens_per_s > 0]
    return policy.target_share * (median(known) if known else policy.tokens_per_s)


def least_slots(owners: int, policy: NeedPolicy) -> int:
    """How many of so many owners must have the adapter in a slot."""
    share = min(1.0, policy.target_share / policy.slot_share)
    return max(1, math.ceil(owners * share - 1e-9))


def recall(exceptions: Mapping[str, int], now_s: float) -> dict[str, Need]:
    """As an earlier placement had written them."""
    return {name: Need(owners, less_since_s=now_s) for name, owners in exceptions.items() if owners > 1}


def needed(before: Needs, rates: Mapping[str, Rate], share: float, now_s: float, policy: NeedPolicy) -> dict[str, Need]:
    """`share` is that of `share_tokens_per_s`. Heats of new counts are for the caller to fill in."""
    after = {}
    for name in _candidates(before, rates, share):
        rate = rates[name].tokens_per_s if name in rates else 0.0
        need = _need(before.get(name, Need(1)), rate / share, now_s, policy)
        if need.owners > 1:
            after[name] = need
    return after


def _candidates(before: Needs, rates: Mapping[str, Rate], share: float) -> Iterable[str]:
    return before.keys() | {name for name, rate in rates.items() if rate.tokens_per_s > share}


def _need(before: Need, shares: float, now_s: float, policy: NeedPolicy) -> Need:
    owners = _step_of(shares)
    if owners > before.owners:
        return Need(owners)
    fewer = _step_below(before.owners)
    if shares > policy.spare * fewer:
        return Need(before.owners, before.heat)
    since_s = now_s if before.less_since_s is None else before.less_since_s
    if now_s - since_s < policy.hold_s:
        return Need(before.owners, before.heat, since_s)
    return Need(fewer, less_since_s=now_s)


def _step_of(shares: float) -> int:
    """The lowest step at which each owner has at most one share."""
    owners = max(1, math.ceil(shares))
    power: int = 1 << (owners - 1).bit_length()
    between = power // 4 * 3
    return between if owners <= between else power


def _step_below(owners: int) -> int:
    """The highest step with fewer owners; 0 below the first."""
    power: int = (1 << (owners - 1).bit_length()) // 2
    between = power // 2 * 3
    return between if power < between < owners else power
