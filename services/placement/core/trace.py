"""The fading rates of one adapter, and what those of a whole pool say of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

_DUE_S = 1.0
"""The next message is due by then: until it is, the last one says how it is now."""


class Trace(msgspec.Struct, frozen=True):
    """The fading rates of one adapter as they were at `at_s`. The first two are the short memory's; `served` are
    requests that were not refused."""

    at_s: float = 0.0
    tokens_per_s: float = 0.0
    requests_per_s: float = 0.0
    long_tokens_per_s: float = 0.0
    long_served_per_s: float = 0.0
    long_finished_per_s: float = 0.0


class Answers(msgspec.Struct, frozen=True):
    """Of a pool: what its traces have of tokens and of answers in a second of the long memory, added up."""

    tokens: float = 0.0
    answers: float = 0.0

    def of_each(self, otherwise: float) -> float:
        """Tokens. They are counted as they pass, so some belong to answers that are not finished."""
        return self.tokens / self.answers if self.answers > 0 else otherwise


def answers_of(traces: Iterable[Trace]) -> Answers:
    tokens = answers = 0.0
    for trace in traces:
        tokens += trace.long_tokens_per_s
        answers += answers_per_s(trace)
    return Answers(tokens, answers)


def answers_per_s(trace: Trace) -> float:
    """Of those under way, half count."""
    finished, served = trace.long_finished_per_s, trace.long_served_per_s
    return finished if finished >= served else (finished + served) / 2


def fade(age_s: float, half_life_s: float) -> float:
    """What is left of 1 after that long; a clock that was put back takes nothing away."""
    return math.exp2(-max(0.0, age_s) / half_life_s)


def left_now(trace: Trace, now_s: float, half_life_s: float) -> float:
    """What is left of each 1 of its short memory."""
    return fade(now_s - trace.at_s - _DUE_S, half_life_s)
