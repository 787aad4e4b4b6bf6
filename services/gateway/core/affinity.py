"""An adapter's requests go to its owners, so that few replicas have to hold it, and to others only in need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.gateway.core.contenders import Contenders
from services.gateway.core.fleet import Fleet
from services.gateway.core.question import RULES, Question, RoutingPolicy
from services.gateway.core.replica import Seat
from shared.messages.identity import AdapterKey

_WARMTH = {"gpu": 0, "ram": 1, "disk": 2, "remote": 2}
"""Disk counts like nothing: it is on every owner's disk sooner or later, and rank must decide then."""
_RULES = ("resident", "ram", "first")
_PLACES = ("resident", "RAM-holding", "first-ranked")


class Pick(NamedTuple):
    seat: Seat
    rule: str
    reason: str


def pick(fleet: Fleet, question: Question, contenders: Contenders, policy: RoutingPolicy) -> Pick:
    """Somebody of `contenders` must be open."""
    assert question.adapter is not None, "the base model has no owners"
    pool, adapter = contenders.pools[0], question.adapter
    owners = fleet.owners(pool.pool_id, adapter.adapter_id)
    fit = [seat for seat in pool.rankings.first(adapter.adapter_id, owners)[:owners] if contenders.fits(seat)]
    if fit:
        return _among(fit, adapter, contenders, policy.margin_of(question.tokens))
    resident = [seat for seat in fleet.resident(pool, adapter) if contenders.fits(seat)]
    if resident:
        return _picked(contenders.lightest(resident), "spill_resident")
    return _spill(pool.rankings.after(adapter.adapter_id, owners), contenders, policy)


def _among(owners: Sequence[Seat], adapter: AdapterKey, contenders: Contenders, margin_tokens: int) -> Pick:
    """The owner in whose fastest tier the adapter is; load decides between resident ones, and rank between others, so
    that one of them warms up rather than both."""
    fills = [contenders.after(seat) for seat in owners]
    warmths = [_WARMTH[seat.replica.tier(adapter)] for seat in owners]
    warmest = min(warmths)
    best = warmths.index(warmest)
    if warmest == 0:
        best = min((place for place, warmth in enumerate(warmths) if warmth == 0), key=fills.__getitem__)
    lightest = fills.index(min(fills))
    if fills[best] - fills[lightest] > margin_tokens:
        reason = f"lighter than the {_PLACES[warmest]} owner by more than {margin_tokens} tokens"
        return Pick(owners[lightest], "margin", reason)
    return _picked(owners[best], _RULES[warmest])


def _spill(ranked: Iterator[Seat], contenders: Contenders, policy: RoutingPolicy) -> Pick:
    """`ranked` are those behind the owners."""
    if policy.overflow == "next" and (following := next(filter(contenders.fits, ranked), None)) is not None:
        return _picked(following, "spill_next")
    lightest = contenders.lightest(contenders.open())
    return _picked(lightest, "spill_lightest" if contenders.fits(lightest) else "overloaded")


def _picked(seat: Seat, rule: str) -> Pick:
    return Pick(seat, rule, RULES[rule])
