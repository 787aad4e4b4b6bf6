"""What the replica has promised, and how fast it keeps its promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

LONGEST_RETRY_S = 30.0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How a request fits the context: it may still produce `max_tokens`."""

    prompt_tokens: int
    max_tokens: int
    reason: str = "fits"


class TooLong(msgspec.Struct, frozen=True, kw_only=True):
    """`about` is the field at fault: "prompt", or "max_tokens" where the prompt alone would fit."""

    reason: str
    about: str


def fit(prompt_tokens: int, wanted_tokens: int | None, max_context_tokens: int) -> Budget | TooLong:
    """What a prompt may still produce; `wanted_tokens` None means up to the context's end."""
    room = max_context_tokens - prompt_tokens
    if room < 1:
        return TooLong(
            reason=f"The prompt has {prompt_tokens} tokens; this model's context holds {max_context_tokens}"
            " and at least one must be left for the answer.",
            about="prompt",
        )
    if wanted_tokens is not None and wanted_tokens > room:
        return TooLong(
            reason=f"The prompt's {prompt_tokens} tokens and {wanted_tokens} for the answer make"
            f" {prompt_tokens + wanted_tokens}; this model's context holds {max_context_tokens}.",
            about="max_tokens",
        )
    return Budget(prompt_tokens=prompt_tokens, max_tokens=room if wanted_tokens is None else wanted_tokens)


@dataclass
class Promises:
    """Tokens in flight: per request its context so far plus what it may still produce.

    That sum does not change while the request runs: each token moves from the second part to the first.
    """

    _promised: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def make(self, request_id: str, tokens: int) -> None:
        self.end(request_id)
        self._promised[request_id] = tokens
        self.total += tokens

    def end(self, request_id: str) -> None:
        self.total -= self._promised.pop(request_id, 0)


@dataclass
class Rate:
    """Events per second with a half-life: after one of silence it shows half of what it did."""

    half_life_s: float = 5.0
    _mass: float = 0.0
    _at_s: float = 0.0

    def add(self, count: float, now_s: float) -> None:
        self._mass = self._decayed(now_s) + count
        self._at_s = now_s

    def per_s(self, now_s: float) -> float:
        return self._decayed(now_s) * math.log(2) / self.half_life_s

    def _decayed(self, now_s: float) -> float:
        return self._mass * math.exp(-math.log(2) * (now_s - self._at_s) / self.half_life_s)


def retry_after_s(queued_tokens: int, tokens_per_s: float) -> float:
    """How long what is promised will take at the present rate; between 1 s and 30 s, 1 s if unknown."""
    if tokens_per_s <= 0:
        return 1.0
    return min(LONGEST_RETRY_S, max(1.0, queued_tokens / tokens_per_s))
