"""What an adapter is asked for at one moment, read from the demand that was folded."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from services.placement.core.demand import Demand, DemandPolicy
from services.placement.core.trace import Answers, Trace, answers_per_s, fade, left_now
from shared.messages.usage import BASE

_TRUSTED = 4.0
"""Requests count for at most so many times what was passed on, so that nobody gets a fleet by asking alone: demand
that is real is passed on as owners are added, and then counts for more."""

_ENOUGH_ANSWERS_PER_S = 0.05
"""Finished answers a second of the long memory (15 in its 300 s) that count as much as the whole pool's."""


class Rate(msgspec.Struct, frozen=True):
    """Of one adapter, by the short memory."""

    tokens_per_s: float
    requests_per_s: float


class Only(msgspec.Struct, frozen=True):
    """Those who may ask for `at_least` so many tokens a second, and those `named`."""

    at_least: float = 0.0
    named: Collection[str] = ()


_ALL = Only()


def asked(demand: Demand, pool_id: str, now_s: float, policy: DemandPolicy, only: Only = _ALL) -> dict[str, Rate]:
    """By adapter id. Where a fleet is full, fewer tokens are passed on than are asked for: then the requests tell, at
    as many tokens as answers have had."""
    usual_tokens = demand.answers.get(pool_id, Answers()).of_each(0.0)
    traces = demand.traces.get(pool_id, {})
    fades: dict[float, float] = {}
    found = {name: traces[name] for name in only.named if name in traces}
    for name, trace in _may_ask(demand, pool_id, policy, only.at_least):
        left = fades.get(trace.at_s)
        if left is None:
            left = fades[trace.at_s] = _TRUSTED * left_now(trace, now_s, policy.half_life_s)
        if trace.tokens_per_s * left >= only.at_least:
            found[name] = trace
    return {name: _rate(trace, usual_tokens, now_s, policy) for name, trace in found.items()}


def _may_ask(demand: Demand, pool_id: str, policy: DemandPolicy, at_least: float) -> Iterable[tuple[str, Trace]]:
    is_loud = at_least >= policy.loud_tokens_per_s * _TRUSTED
    return (demand.loud if is_loud else demand.traces).get(pool_id, {}).items()


def steady(demand: Demand, pool_id: str, now_s: float, policy: DemandPolicy) -> dict[str, float]:
    """Requests a second of the long memory, by adapter id."""
    traces = demand.traces.get(pool_id, {})
    return {
        name: trace.long_served_per_s * fade(now_s - trace.at_s, policy.long_half_life_s)
        for name, trace in traces.items()
        if name != BASE
    }


def _rate(trace: Trace, usual_tokens: float, now_s: float, policy: DemandPolicy) -> Rate:
    short = left_now(trace, now_s, policy.half_life_s)
    own, answers = trace.long_finished_per_s, answers_per_s(trace)
    tokens_own = trace.long_tokens_per_s / answers if answers > 0 else usual_tokens
    tokens_each = (tokens_own * own + usual_tokens * _ENOUGH_ANSWERS_PER_S) / (own + _ENOUGH_ANSWERS_PER_S)
    wanted = min(trace.requests_per_s * tokens_each, _TRUSTED * trace.tokens_per_s)
    return Rate(short * max(wanted, trace.tokens_per_s), short * trace.requests_per_s)
