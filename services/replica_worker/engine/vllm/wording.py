"""What a request and its answer are in vLLM's words. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.replica_worker.engine.port import EngineRequest, Probe

_DRAW = "lorafleet_draw"


class Draw(msgspec.Struct, frozen=True, array_like=True):
    """How the tokens of one request are drawn; crosses the process border with its request."""

    temperature: float
    top_p: float
    seed: int
    first_position: int


def sampling(request: EngineRequest, eos_token_ids: Sequence[int], context_tokens: int) -> dict[str, Any]:
    """Arguments of SamplingParams for a request that produces tokens."""
    draw = Draw(request.temperature, request.top_p, request.seed, request.first_position)
    return {
        **_GREEDY,
        "max_tokens": min(request.max_tokens, context_tokens - len(request.prompt_token_ids)),
        "stop_token_ids": [] if request.ignore_eos else list(eos_token_ids),
        "extra_args": {_DRAW: msgspec.to_builtins(draw)} if request.temperature > 0 else None,
    }


def probing(top: int) -> dict[str, Any]:
    """Arguments of SamplingParams for a prompt whose next-token distribution is asked for."""
    return {**_GREEDY, "max_tokens": 1, "logprobs": top}


_GREEDY: dict[str, Any] = {
    "temperature": 0.0,
    "ignore_eos": True,  # what ends an answer is named by its ids
    "detokenize": False,
}


def draw_of(extra_args: Mapping[str, Any] | None) -> Draw | None:
    """What `sampling` put there; None for a greedy request."""
    told = (extra_args or {}).get(_DRAW)
    return None if told is None else msgspec.convert(told, Draw)


def probe_of(logprobs: Mapping[int, float], top: int) -> Probe:
    """Best first; the smaller id first where two are equal."""
    best = sorted(logprobs.items(), key=lambda item: (-item[1], item[0]))[:top]
    return Probe(
        finite=bool(logprobs) and all(math.isfinite(value) for value in logprobs.values()),
        token_ids=tuple(token_id for token_id, _ in best),
        logprobs=tuple(value for _, value in best),
    )
