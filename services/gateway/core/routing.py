"""Which replica gets a request: a resident owner, unless another is lighter by a margin or all are full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from services.gateway.core.fleet import Candidate, Fleet
from shared.hashing import rank
from shared.messages.identity import AdapterKey
from shared.messages.reports import TIERS

Strategy = Literal["affinity", "random", "least_loaded", "round_robin"]
Overflow = Literal["next", "least_loaded"]


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much lighter another owner must be to be worth a cold load: by `margin_tokens`, and by as much as
    `margin_requests` requests like this one. Above `spill_above` of a pool's rows in use, no choice may lift a
    replica past `bound` times the mean load."""

    margin_tokens: int = 8_000
    margin_requests: float = 2.0
    spill_above: float = 0.7
    bound: float = 1.25
    strategy: Strategy = "affinity"
    bounded: bool = True
    overflow: Overflow = "next"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be placed. `adapter` None is the base model; `pool_ids` are the pools that can answer, and
    `merged_pool_ids` those whose replicas have nothing but this adapter merged in; `tokens` is what the request
    promises to hold and produce; `tried` are the replicas that must not be asked again."""

    adapter: AdapterKey | None
    pool_ids: tuple[str, ...]
    tokens: int
    tried: frozenset[str] = frozenset()
    merged_pool_ids: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is a sentence for the log, `rule` the short stable word that is counted."""

    replica_id: str
    pool_id: str
    incarnation: str
    reason: str
    rule: str


class NoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`may_change`: somebody who was not tried may become usable soon."""

    reason: str
    may_change: bool = False


def route(fleet: Fleet, question: Question, policy: RoutingPolicy, now_s: float, draw: float) -> Choice | NoChoice:
    """Who gets the request. `draw`, from 0 up to 1, is all the chance there is."""
    merged = fleet.candidates(question.merged_pool_ids, question.adapter, now_s)
    others = fleet.candidates(question.pool_ids, question.adapter, now_s)
    owners = fleet.owners(question.pool_ids[0], question.adapter) if question.adapter is not None else 0
    return choose_merged(question, owners, merged, others, policy)


def choose_merged(
    question: Question,
    owner_count: int,
    merged: Sequence[Candidate],
    others: Sequence[Candidate],
    policy: RoutingPolicy,
) -> Choice | NoChoice:
    """A replica that has the adapter `merged` in, while one has a free row; else as for everybody, by `others`.

    Merged replicas are known by the digest in their pool's name; one that does not say it has this very adapter has
    another with the same bytes, perhaps another alpha, and would refuse."""
    merged = [c for c in merged if c.unusable or c.tier == "gpu"]
    ready = [c for c in merged if not c.unusable and c.replica_id not in question.tried]
    free = [c for c in ready if c.requests < c.max_rows]
    if free:
        return _choice(_lightest(free), "merged", "this replica has the adapter merged in")
    choice = choose(question, owner_count, others, policy)
    if isinstance(choice, Choice):
        return choice
    if ready:
        return _choice(
            _lightest(ready), "merged_full", "this replica has the adapter merged in, and nobody else can take it"
        )
    return choose(question, owner_count, (*merged, *others), policy)


def choose(
    question: Question, owner_count: int, candidates: Sequence[Candidate], policy: RoutingPolicy
) -> Choice | NoChoice:
    """`candidates` are the members of every pool that can serve the request, usable or not."""
    candidates = sorted(candidates, key=lambda candidate: candidate.replica_id)
    usable = [c for c in candidates if not c.unusable and c.replica_id not in question.tried]
    if not usable:
        untried = any(c.replica_id not in question.tried for c in candidates)
        return NoChoice(reason=_why_none(question, candidates), may_change=untried or not question.tried)
    if question.adapter is None:
        return _choice(_lightest(usable), "base", "the least loaded replica of the base model")
    order = rank(question.adapter.adapter_id, {c.replica_id: c.weight for c in candidates})
    full = _full(question, usable, policy)
    fit = {c.replica_id: c for c in usable if c.replica_id not in full}
    owners = [fit[name] for name in order[:owner_count] if name in fit]
    if owners:
        return _among(owners, max(policy.margin_tokens, round(policy.margin_requests * question.tokens)))
    for name in order[owner_count:]:
        if name in fit:
            return _choice(fit[name], "spill_next", "no owner can take it: the next in the ranking")
    return _choice(_lightest(usable), "overloaded", "every replica is overloaded: the least loaded")


def _among(owners: Sequence[Candidate], margin_tokens: int) -> Choice:
    """The owner in whose fastest tier the adapter is; load decides between two resident ones, and rank
    between two that are not, so that one of them warms up rather than both."""
    best = min(owners, key=lambda owner: (_warmth(owner), owner.load_tokens if owner.tier == "gpu" else 0))
    lightest = _lightest(owners)
    if best.load_tokens - lightest.load_tokens > margin_tokens:
        return _choice(lightest, "margin", f"lighter than the {_place(best)} owner by more than {margin_tokens} tokens")
    return _choice(best, {"gpu": "resident", "ram": "ram"}.get(best.tier, "first"), f"the {_place(best)} owner")


def _warmth(owner: Candidate) -> int:
    """Disk counts like nothing: it is on every owner's disk sooner or later, and rank must decide then."""
    return min(TIERS.index(owner.tier), TIERS.index("disk"))


def _place(owner: Candidate) -> str:
    return {"gpu": "resident", "ram": "RAM-holding"}.get(owner.tier, "first-ranked")


def _full(question: Question, usable: Sequence[Candidate], policy: RoutingPolicy) -> frozenset[str]:
    """Consistent hashing with bounded loads, once the pool is busy enough for it to matter."""
    rows = sum(candidate.max_rows for candidate in usable)
    if not rows or sum(candidate.requests for candidate in usable) <= policy.spill_above * rows:
        return frozenset()
    weight = sum(candidate.weight for candidate in usable)
    mean = (sum(candidate.load_tokens for candidate in usable) + question.tokens) / weight
    return frozenset(
        candidate.replica_id
        for candidate in usable
        if candidate.load_tokens + question.tokens > policy.bound * mean * candidate.weight
    )


def _lightest(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda candidate: (candidate.load_tokens / candidate.weight, candidate.replica_id))


def _choice(candidate: Candidate, rule: str, reason: str) -> Choice:
    return Choice(
        replica_id=candidate.replica_id, pool_id=candidate.pool_id, incarnation=candidate.incarnation, reason=reason,
        rule=rule,
    )  # fmt: skip


def _why_none(question: Question, candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "No replica serves this model's pool at the moment."
    reasons = [
        f"{c.replica_id}: {'already tried' if c.replica_id in question.tried else c.unusable}" for c in candidates
    ]
    return f"No replica can take the request ({'; '.join(reasons[:5])})."
