"""An adapter's requests go to its owners, so that few replicas have to hold it, and to others only in need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.gateway.core.contenders import Contenders
from services.gateway.core.fleet import Fleet
from services.gateway.core.question import RULES, Overflow, Question, RoutingPolicy
from services.gateway.core.replica import Seat
from shared.messages.identity import AdapterKey

_WARMTH = {"gpu": 0, "ram": 1, "disk": 2, "remote": 2}
"""Disk counts like nothing: it is on every owner's disk sooner or later, and rank must decide then."""
_RULES = ("resident", "ram", "first")
_SPILLS = (("gpu", "spill_resident"), ("ram", "spill_ram"))
_PLACES = ("resident", "RAM-holding", "first-ranked")


class Pick(NamedTuple):
    seat: Seat
    rule: str
    reason: str


def pick(fleet: Fleet, question: Question, contenders: Contenders, policy: RoutingPolicy) -> Pick:
    """Somebody of `contenders` must be open. First come those where it need not wait for a row, the owners before
    others who have the adapter at hand: taking it there costs milliseconds, waiting a few tenths of a second. Who has
    it nowhere is asked once a wait would take longer than fetching it."""
    assert question.adapter is not None, "the base model has no owners"
    pool, adapter = contenders.pools[0], question.adapter
    count = fleet.owners(pool.pool_id, adapter.adapter_id)
    owners = pool.rankings.first(adapter.adapter_id, count)[:count]
    margin_tokens = policy.margin_of(question.tokens)
    if room := [seat for seat in owners if contenders.has_room(seat)]:
        return _among(room, adapter, contenders, margin_tokens)
    for tier, rule in _SPILLS:
        if room := [seat for seat in fleet.holders(pool, adapter, tier) if contenders.has_room(seat)]:
            return _picked(contenders.lightest(room), rule)
    fit = [seat for seat in owners if contenders.fits(seat)]
    if short := [seat for seat in fit if contenders.waiting(seat) < policy.spill_waiting]:
        return _picked(min(short, key=contenders.waiting), "queue")
    behind = pool.rankings.after(adapter.adapter_id, count)
    if spilled := _spilled(behind, contenders, policy.overflow, contenders.has_room):
        return spilled
    if fit:
        return _among(fit, adapter, contenders, margin_tokens)
    if fit := [seat for seat in fleet.holders(pool, adapter, "gpu") if contenders.fits(seat)]:
        return _picked(contenders.lightest(fit), "spill_resident")
    behind = pool.rankings.after(adapter.adapter_id, count)
    spilled = _spilled(behind, contenders, policy.overflow, contenders.fits)
    return spilled or _picked(contenders.lightest(contenders.open()), "overloaded")


def _among(owners: Sequence[Seat], adapter: AdapterKey, contenders: Contenders, margin_tokens: int) -> Pick:
    """The owner in whose fastest tier the adapter is; load decides between resident ones, and rank between others, so
    that one of them warms up rather than both."""
    fills = [contenders.after(seat) for seat in owners]
    warmths = [_WARMTH[seat.replica.tier(adapter)] for seat in owners]
    warmest = min(warmths)
    best = warmths.index(warmest)
    if warmest == 0:
        resident = [place for place, warmth in enumerate(warmths) if warmth == 0]
        best = min(resident, key=lambda place: contenders.hurried(owners[place]))
    lightest = fills.index(min(fills))
    if fills[best] - fills[lightest] > margin_tokens:
        reason = f"lighter than the {_PLACES[warmest]} owner by more than {margin_tokens} tokens"
        return Pick(owners[lightest], "margin", reason)
    return _picked(owners[best], _RULES[warmest])


def _spilled(
    behind: Iterable[Seat], contenders: Contenders, overflow: Overflow, may: Callable[[Seat], bool]
) -> Pick | None:
    """To one of those that `may` have it, if there are any; `behind` are those ranked behind the owners."""
    if overflow == "next":
        following = next(filter(may, behind), None)
        return None if following is None else _picked(following, "spill_next")
    able = [seat for seat in contenders.open() if may(seat)]
    return _picked(contenders.lightest(able), "spill_lightest") if able else None


def _picked(seat: Seat, rule: str) -> Pick:
    return Pick(seat, rule, RULES[rule])
