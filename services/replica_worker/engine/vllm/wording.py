"""What a request and its answer are in vLLM's words. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.replica_worker.engine.port import EngineRequest, Probe
from services.replica_worker.engine.shaping import Logprobs

_DRAW = "lorafleet_draw"


class Draw(msgspec.Struct, frozen=True, array_like=True):
    """How the tokens of one request are chosen; crosses the process border with its request. `told`: somebody wants to
    hear how likely they were."""

    temperature: float
    top_p: float
    seed: int
    first_position: int
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    json_schema: str = ""
    told: bool = False

    @property
    def plain(self) -> bool:
        """The distribution is taken as it is."""
        return not (self.frequency_penalty or self.presence_penalty or self.logit_bias or self.json_schema)

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0.0


def sampling(request: EngineRequest, eos_token_ids: Sequence[int], context_tokens: int) -> dict[str, Any]:
    """Arguments of SamplingParams for a request that produces tokens."""
    draw, top = _draw(request), None if request.shaping is None else request.shaping.top_logprobs
    return {
        **_GREEDY,
        "max_tokens": min(request.max_tokens, context_tokens - len(request.prompt_token_ids)),
        "stop_token_ids": [] if request.ignore_eos else list(eos_token_ids),
        "logprobs": top,
        "extra_args": None if draw.greedy and draw.plain else {_DRAW: msgspec.to_builtins(draw)},
    }


def _draw(request: EngineRequest) -> Draw:
    keyed = Draw(request.temperature, request.top_p, request.seed, request.first_position)
    if (shaping := request.shaping) is None:
        return keyed
    return msgspec.structs.replace(
        keyed,
        frequency_penalty=shaping.frequency_penalty,
        presence_penalty=shaping.presence_penalty,
        logit_bias=tuple(shaping.logit_bias.items()),
        json_schema="" if shaping.grammar is None else shaping.grammar.json_schema,
        told=shaping.top_logprobs is not None,
    )


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


def logprobs_of(found: Mapping[int, float], token_id: int, top: int) -> Logprobs:
    """vLLM names the chosen token and the likeliest ones, together."""
    best = _best(found, top)
    return Logprobs(found[token_id], tuple(id_ for id_, _ in best), tuple(value for _, value in best))


def probe_of(logprobs: Mapping[int, float], top: int) -> Probe:
    """Best first; the smaller id first where two are equal."""
    best = _best(logprobs, top)
    return Probe(
        finite=bool(logprobs) and all(math.isfinite(value) for value in logprobs.values()),
        token_ids=tuple(token_id for token_id, _ in best),
        logprobs=tuple(value for _, value in best),
    )


def _best(logprobs: Mapping[int, float], top: int) -> list[tuple[int, float]]:
    return sorted(logprobs.items(), key=lambda item: (-item[1], item[0]))[:top]
