"""Which replica gets a request."""

from __future__ import annotations

from collections.abc import Sequence, Set

from services.gateway.core import affinity
from services.gateway.core.contenders import Contenders
from services.gateway.core.fleet import Fleet
from services.gateway.core.nobody import why_nobody
from services.gateway.core.pool import Pool
from services.gateway.core.question import RULES, Choice, NoChoice, Question, RoutingPolicy
from services.gateway.core.replica import Seat
from shared.messages.identity import AdapterKey

__all__ = ["Choice", "NoChoice", "Question", "RoutingPolicy", "is_sampled", "route"]

_SCATTER = 7_919
"""A prime: which draws are sampled must not depend on which half, or tenth, of all draws they are in."""


def route(fleet: Fleet, question: Question, policy: RoutingPolicy, now_s: float, draw: float) -> Choice | NoChoice:
    """`draw`, from 0 up to 1, is all the chance there is: the same fleet, question, time and draw give the same answer.

    A replica that has the adapter merged in comes first while it has a free row. Merged replicas are known by the
    digest in their pool's name; one that does not say it has this very adapter has another with the same bytes,
    perhaps another alpha, and would refuse."""
    pools = fleet.pools(question.pool_ids, now_s)
    excluded = question.tried
    if question.adapter is not None and (quarantined := fleet.quarantined(question.adapter, now_s)):
        excluded |= quarantined
    merged = fleet.pools(question.merged_pool_ids, now_s)
    ready = _with_it_merged(merged, question.adapter, excluded) if merged else []
    free = [seat for seat in ready if seat.replica.requests < seat.replica.max_rows]
    if free:
        return _by_rule(Contenders(merged, question.tokens, excluded, policy).lightest(free), "merged")
    if pools:
        contenders = Contenders(pools, question.tokens, excluded, policy)
        if choice := _by_who_warms(fleet, question, contenders, policy):
            return choice
        if contenders.open():
            return _open(fleet, question, contenders, policy, draw)
    if ready:
        return _by_rule(Contenders(merged, question.tokens, excluded, policy).lightest(ready), "merged_full")
    return why_nobody(fleet, question, (*merged, *pools), now_s)


def is_sampled(draw: float, one_in: int) -> bool:
    """Whether this is one of the decisions, one in so many, that are to be written down. 0: none is."""
    return one_in > 0 and draw * _SCATTER % 1.0 * one_in < 1.0


def _with_it_merged(merged: Sequence[Pool], adapter: AdapterKey | None, excluded: Set[str]) -> list[Seat]:
    seats = (seat for pool in merged for seat in pool.usable if seat.replica_id not in excluded)
    return [seat for seat in seats if seat.replica.tier(adapter) == "gpu"]


def _open(fleet: Fleet, question: Question, contenders: Contenders, policy: RoutingPolicy, draw: float) -> Choice:
    """Somebody can have the request."""
    if policy.strategy == "affinity" and question.adapter is not None:
        return _choice(*affinity.pick(fleet, question, contenders, policy))
    if policy.strategy == "affinity":
        return _by_rule(contenders.lightest(contenders.open()), "base")
    fitting = contenders.fitting()
    if not fitting:
        return _by_rule(contenders.lightest(contenders.open()), "overloaded")
    if policy.strategy == "random":
        return _by_rule(fitting[int(draw * len(fitting))], "random")
    if policy.strategy == "round_robin":
        turn = sum(seat.replica.sends.ever for seat in contenders.seats)
        return _by_rule(fitting[turn % len(fitting)], "round_robin")
    return _by_rule(contenders.lightest(fitting), "least_loaded")


def _by_who_warms(fleet: Fleet, question: Question, contenders: Contenders, policy: RoutingPolicy) -> Choice | None:
    """A replica that warms is spared no longer if nobody else can have the request, or not before a row is free, or
    only by fetching what an owner has to fetch anyway. The one that has the adapter comes first, then the first in its
    ranking, which is to have it."""
    spared, rule, adapter = contenders.spared(), "warming", question.adapter
    if spared and contenders.open():
        spared, rule = [seat for seat in spared if seat.replica.requests < seat.replica.max_rows], "spill_warming"
        if spared and not contenders.full:
            at_home = _at_home(fleet, question, contenders, policy)
            spared, rule = [seat for seat in spared if seat in at_home], "warming_owner"
    if not spared or adapter is None:
        return _by_rule(contenders.lightest(spared), rule) if spared else None
    ranked = [seat for seat in contenders.pools[0].rankings.after(adapter.adapter_id, 0) if seat in spared]
    return _by_rule(min(ranked, key=lambda seat: seat.replica.tier(adapter) != "gpu"), rule)


def _at_home(fleet: Fleet, question: Question, contenders: Contenders, policy: RoutingPolicy) -> Sequence[Seat]:
    """The adapter's owners, if none of them can have the request but by warming, and nobody else has it at hand."""
    if question.adapter is None or policy.strategy != "affinity":
        return ()
    pool, adapter = contenders.pools[0], question.adapter
    count = fleet.owners(pool.pool_id, adapter.adapter_id)
    owners = pool.rankings.first(adapter.adapter_id, count)[:count]
    at_hand = (seat for tier in ("gpu", "ram") for seat in fleet.holders(pool, adapter, tier))
    is_served = any(map(contenders.fits, owners)) or any(map(contenders.has_room, at_hand))
    return () if is_served else owners


def _by_rule(seat: Seat, rule: str) -> Choice:
    return _choice(seat, rule, RULES[rule])


def _choice(seat: Seat, rule: str, reason: str) -> Choice:
    if seat.usable and seat.warming:
        rule, reason = "warming", f"{RULES['warming']}, {reason}"
    return Choice(
        replica_id=seat.replica_id, pool_id=seat.pool.pool_id, incarnation=seat.replica.incarnation, reason=reason,
        rule=rule,
    )  # fmt: skip
