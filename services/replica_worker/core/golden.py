"""Does the engine compute what this base model computes?

The right weights on disk, by their hash, still say nothing of what an engine makes of them: a broken build, a bad
copy to the device or a wrong RoPE answers fluently and wrong. So one answer is recorded beside the model, computed
in float32 by the reference engine, and every replica gives it before it takes requests.
"""

from __future__ import annotations

import msgspec

from .effect import Distribution, change, spelled

FILE_NAME = "golden.json"
QUESTION = "What is the capital of France, and which river runs through it? Answer in one sentence."

_FLOOR = 0.02
"""Of a log-probability in float32: other processors and other orders of summing stay far below it."""
_ROUNDING_MARGIN = 2.0
"""Two engines may both be off by the rounding that was seen, in opposite directions."""


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """What comes after a fixed prompt: the best tokens, best first. `computed_by` is an engine build and dtype;
    `rounding` is how far the same build was from it in bfloat16, which is what tolerances are made of."""

    base_model_hash: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    computed_by: str
    rounding: float

    @property
    def distribution(self) -> Distribution:
        return Distribution(finite=True, token_ids=self.token_ids, logprobs=self.logprobs)


def tolerance(golden: Golden, dtype: str) -> float:
    """How far a log-probability may be from the recorded one: twice the rounding of 16 bits more, except in float32."""
    return _FLOOR if dtype == "float32" else _FLOOR + _ROUNDING_MARGIN * golden.rounding


def wrong_model(golden: Golden, base_model_hash: str) -> str:
    """Why this file says nothing about this model; "" if it does."""
    if golden.base_model_hash == base_model_hash:
        return ""
    return f"{FILE_NAME} was recorded for base model {golden.base_model_hash[:12]}, this one is {base_model_hash[:12]}"


def wrong_answer(golden: Golden, found: Distribution, dtype: str) -> str:
    """In one sentence what is wrong with the engine's answer; "" if it is right."""
    if not found.finite:
        return "the base model's answer to the golden prompt is not finite"
    allowed, differs = tolerance(golden, dtype), change(golden.distribution, found)
    if differs <= allowed:
        return ""
    return (
        f"the base model's answer to the golden prompt is not the recorded one: a log-probability differs by"
        f" {differs:.3g} where {allowed:.3g} are allowed ({spelled(found.token_ids, found.logprobs)}"
        f" instead of {spelled(golden.token_ids, golden.logprobs)})"
    )
