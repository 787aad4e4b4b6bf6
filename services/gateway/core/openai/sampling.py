"""The parameters that both of OpenAI's doors share: how tokens are drawn, when it ends, how the answer comes."""

from __future__ import annotations

import re
from typing import Any

from services.gateway.core.fields import Defect, flag, integer, is_integer, mapping, number, required, shown
from services.gateway.core.wish import Wish
from shared.messages.generation import Sampling

MOST_CHOICES = 16
MOST_STOPS = 4
LONGEST_STOP_CHARS = 4_096
MOST_BIASED = 1_024
LARGEST_BIAS = 100.0
LARGEST_TOKENS = (1 << 31) - 1
TOKEN_ID_PATTERN = "^[0-9]{1,9}$"
_INT64 = 1 << 63
_TOKEN_ID = re.compile(TOKEN_ID_PATTERN, re.ASCII)


def read_shared(fields: dict[str, Any]) -> Wish:
    """Without its prompts and how they are sampled. Raises Defect, as all of these do."""
    model, stream = _model(fields), flag(fields, "stream", "stream")
    return Wish(
        model=model, prompts=(), n=integer(fields, "n", 1, MOST_CHOICES) or 1, seed=_seed(fields.get("seed")),
        stream=stream, include_usage=_include_usage(fields, stream), session=_session(fields),
    )  # fmt: skip


def read_sampling(fields: dict[str, Any], max_tokens: int | None) -> Sampling:
    """Without the seed."""
    return Sampling(
        seed=0,
        max_tokens=max_tokens,
        temperature=number(fields, "temperature", 0.0, 2.0),
        top_p=_top_p(fields),
        stop=_stop(fields.get("stop", [])),
        frequency_penalty=number(fields, "frequency_penalty", -2.0, 2.0, 0.0),
        presence_penalty=number(fields, "presence_penalty", -2.0, 2.0, 0.0),
        logit_bias=_logit_bias(fields.get("logit_bias", {})),
    )


def read_max_tokens(fields: dict[str, Any], name: str) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if not is_integer(value) or value < 1:
        raise Defect(f"`{name}` must be an integer of at least 1, not {shown(value)}.", name, "invalid_value")
    return min(int(value), LARGEST_TOKENS)


def _model(fields: dict[str, Any]) -> str:
    model = required(fields, "model")
    if not isinstance(model, str) or not model:
        raise Defect(f"`model` must be a non-empty string, not {shown(model)}.", "model", "invalid_type")
    return model


def _seed(value: Any) -> int | None:
    if value is None:
        return None
    if not is_integer(value) or not -_INT64 <= value < _INT64:
        raise Defect(f"`seed` must be a 64-bit integer, not {shown(value)}.", "seed", "invalid_value")
    return int(value) % _INT64


def _include_usage(fields: dict[str, Any], stream: bool) -> bool:
    if (options := fields.get("stream_options")) is None:
        return False
    mapping(options, "stream_options")
    if not stream:
        raise Defect("`stream_options` is only allowed when `stream` is true.", "stream_options", "invalid_value")
    return flag(options, "include_usage", "stream_options.include_usage")


def _session(fields: dict[str, Any]) -> str | None:
    """`user` is believed to name a session, and nothing else."""
    user = fields.get("user", "")
    if not isinstance(user, str):
        raise Defect(f"`user` must be a string, not {shown(user)}.", "user", "invalid_type")
    return user or None


def _top_p(fields: dict[str, Any]) -> float:
    value = number(fields, "top_p", 0.0, 1.0)
    if value == 0.0:
        raise Defect("`top_p` must be above 0: nothing could be sampled.", "top_p", "invalid_value")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or any(not isinstance(stop, str) or not stop for stop in stops):
        raise Defect("`stop` must be a non-empty string or a list of them.", "stop", "invalid_type")
    if len(stops) > MOST_STOPS:
        raise Defect(f"`stop` may hold at most {MOST_STOPS} strings, not {len(stops)}.", "stop", "invalid_value")
    if (longest := max(map(len, stops), default=0)) > LONGEST_STOP_CHARS:
        message = f"`stop` may hold strings of at most {LONGEST_STOP_CHARS} characters, not of {longest}."
        raise Defect(message, "stop", "invalid_value")
    return tuple(stops)


def _logit_bias(value: Any) -> dict[int, float]:
    bias = mapping(value, "logit_bias")
    if len(bias) > MOST_BIASED:
        message = f"`logit_bias` may name at most {MOST_BIASED} tokens, not {len(bias)}."
        raise Defect(message, "logit_bias", "invalid_value")
    return {_token_id(name): _bias(name, each) for name, each in bias.items()}


def _token_id(name: str) -> int:
    if not _TOKEN_ID.fullmatch(name):
        raise Defect(f"`logit_bias` names tokens by their ids, not {shown(name)}.", "logit_bias", "invalid_value")
    return int(name)


def _bias(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST_BIAS <= value <= LARGEST_BIAS:
        bounds = f"from {-LARGEST_BIAS:g} to {LARGEST_BIAS:g}"
        message = f"`logit_bias` of token {name} must be a number {bounds}, not {shown(value)}."
        raise Defect(message, "logit_bias", "invalid_value")
    return float(value)
