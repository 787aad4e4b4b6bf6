"""What customers ask for, by adapter: the messages of all gateways folded into rates that forget by half-lives.

Each message is a push that fades, whoever sent it. So gateways add up, one that falls silent fades out, and so does
an adapter that nobody asks for any more. A gateway's lost messages are made good by its next one, which then stands
for them as well. There are two memories: a short one, which owner counts follow, and a long one for how many tokens
an answer has and for how busy an adapter is on the whole.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.placement.core.trace import Answers, Trace, answers_of, fade, left_now
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity

_MADE_GOOD = 5
"""So many lost messages are made good; what a gateway did in a longer absence is not guessed at."""

_SILENCE_S = 12.0
"""A gateway to which nothing happens says so every 10 s. A longer silence of all is time of which nothing is known."""

_CLEARED_EVERY = 64
"""After so many messages, those adapters are forgotten whose rates have all but faded, and gateways that are gone."""

_REMEMBERED_S = 600.0
"""A gateway that has been silent for so long is none any more: processes have new names, and names must not add up."""

_NOTHING_PER_S = 1e-5


class DemandPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever has `loud_tokens_per_s` by the short memory is kept in a list of its own, and stays there for a little
    longer."""

    half_life_s: float = 4.0
    long_half_life_s: float = 300.0
    loud_tokens_per_s: float = 16.0


class Voice(msgspec.Struct, frozen=True):
    """The last message of one gateway."""

    sequence: int
    at_s: float


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """`traces` by pool and adapter id, the base model among them; `voices` by gateway. `heard`, 0 to 1, is how much of
    what the long memory would remember has really been heard, as it was at `heard_at_s`. `loud` and `answers`, by pool,
    follow from the traces, and are kept up so that nobody need look through all of them."""

    traces: Mapping[str, Mapping[str, Trace]] = {}
    loud: Mapping[str, Mapping[str, Trace]] = {}
    answers: Mapping[str, Answers] = {}
    voices: Mapping[str, Voice] = {}
    heard: float = 0.0
    heard_at_s: float = 0.0
    messages: int = 0


def fold(demand: Demand, message: GatewayActivity, now_s: float, policy: DemandPolicy) -> Demand:
    """The demand after one more message; a repeated or late one changes nothing."""
    stands_for = _stands_for(demand.voices.get(message.gateway_id), message.sequence)
    if not stands_for:
        return demand
    push = _Push(now_s, message.interval_s, stands_for, policy)
    traces, loud, answers = dict(demand.traces), dict(demand.loud), dict(demand.answers)
    for pool_id, activity in message.pools.items():
        known = traces.get(pool_id, {})
        pushed = push.pushed(known, activity)
        traces[pool_id] = {**known, **pushed}
        quieter = {name: trace for name, trace in loud.get(pool_id, {}).items() if name not in pushed}
        loud[pool_id] = quieter | _loud(pushed, now_s, policy)
        answers[pool_id] = _answers_after(answers.get(pool_id, Answers()), known, pushed)
    voices = {**demand.voices, message.gateway_id: Voice(message.sequence, now_s)}
    if demand.messages % _CLEARED_EVERY == _CLEARED_EVERY - 1:
        traces = _cleared(traces, now_s, policy)
        loud = {pool_id: _loud(found, now_s, policy) for pool_id, found in loud.items() if pool_id in traces}
        answers = {pool_id: answers_of(found.values()) for pool_id, found in traces.items()}
        voices = {name: voice for name, voice in voices.items() if now_s - voice.at_s < _REMEMBERED_S}
    return Demand(
        traces=traces,
        loud=loud,
        answers=answers,
        voices=voices,
        heard=_heard_after(demand, message.interval_s, now_s, policy),
        heard_at_s=now_s,
        messages=demand.messages + 1,
    )


def _answers_after(before: Answers, known: Mapping[str, Trace], pushed: Mapping[str, Trace]) -> Answers:
    """Exact to a rounding, and added up anew every now and then, so that roundings do not add up."""
    gone = answers_of(known[name] for name in pushed if name in known)
    come = answers_of(pushed.values())
    return Answers(before.tokens - gone.tokens + come.tokens, before.answers - gone.answers + come.answers)


def _loud(traces: Mapping[str, Trace], now_s: float, policy: DemandPolicy) -> dict[str, Trace]:
    """Who has faded below it comes above it again with a message alone."""
    return {
        name: trace
        for name, trace in traces.items()
        if trace.tokens_per_s * left_now(trace, now_s, policy.half_life_s) >= policy.loud_tokens_per_s
    }


def heard_share(demand: Demand, now_s: float, policy: DemandPolicy) -> float:
    """How much of what the long memory would remember now has been heard."""
    silence_s = now_s - demand.heard_at_s
    return demand.heard * (fade(silence_s, policy.long_half_life_s) if silence_s > _SILENCE_S else 1.0)


def _stands_for(last: Voice | None, sequence: int) -> int:
    """For how many messages this one counts; 0 if it was heard before, or its successor was."""
    if last is None:
        return 1
    known = last.sequence
    if known - _MADE_GOOD <= sequence <= known:
        return 0
    missed = sequence - known - 1  # a process that begins anew begins to count anew, far below
    return 1 + missed if 0 <= missed <= _MADE_GOOD else 1


class _Push:
    """What one message adds. An interval's share of a rate is what makes a steady stream of them come out exact."""

    def __init__(self, now_s: float, interval_s: float, stands_for: int, policy: DemandPolicy) -> None:
        heard_s = max(interval_s, 0.001)
        self._now_s = now_s
        self._policy = policy
        self._fades: dict[float, tuple[float, float]] = {}
        """By the time of a trace: many are as old as the last message."""
        self._short = (1.0 - fade(heard_s * stands_for, policy.half_life_s)) / heard_s
        self._long = (1.0 - fade(heard_s * stands_for, policy.long_half_life_s)) / heard_s

    def pushed(self, traces: Mapping[str, Trace], activity: PoolActivity) -> dict[str, Trace]:
        served = 1.0 - min(1.0, activity.refused / activity.requests) if activity.requests else 1.0
        return {name: self._one(traces.get(name), seen, served) for name, seen in activity.adapters.items()}

    def _one(self, before: Trace | None, seen: AdapterActivity, served: float) -> Trace:
        before = before or Trace(self._now_s)
        short, long = self._fades.get(before.at_s) or self._faded(before.at_s)
        return Trace(
            self._now_s,
            before.tokens_per_s * short + seen.tokens * self._short,
            before.requests_per_s * short + seen.requests * self._short,
            before.long_tokens_per_s * long + seen.tokens * self._long,
            before.long_served_per_s * long + seen.requests * served * self._long,
            before.long_finished_per_s * long + seen.finished * self._long,
        )

    def _faded(self, at_s: float) -> tuple[float, float]:
        age_s = self._now_s - at_s
        faded = fade(age_s, self._policy.half_life_s), fade(age_s, self._policy.long_half_life_s)
        self._fades[at_s] = faded
        return faded


def _heard_after(demand: Demand, interval_s: float, now_s: float, policy: DemandPolicy) -> float:
    since_s = now_s - demand.heard_at_s
    if demand.messages == 0 or since_s > _SILENCE_S:
        before = demand.heard * fade(since_s, policy.long_half_life_s) if demand.messages else 0.0
        since_s = min(interval_s, _SILENCE_S)
    else:
        before = demand.heard
    return 1.0 - (1.0 - before) * fade(since_s, policy.long_half_life_s)


def _cleared(
    traces: Mapping[str, Mapping[str, Trace]], now_s: float, policy: DemandPolicy
) -> dict[str, Mapping[str, Trace]]:
    """Those that are still felt, and the pools that have any."""
    felt = {
        pool_id: {name: trace for name, trace in found.items() if _is_felt(trace, now_s, policy)}
        for pool_id, found in traces.items()
    }
    return {pool_id: found for pool_id, found in felt.items() if found}


def _is_felt(trace: Trace, now_s: float, policy: DemandPolicy) -> bool:
    left = max(trace.long_served_per_s, trace.long_tokens_per_s)
    return left * fade(now_s - trace.at_s, policy.long_half_life_s) > _NOTHING_PER_S
