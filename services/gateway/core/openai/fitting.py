"""Whether what was asked for can be had of the base model that it was asked of, and by whoever asks."""

from __future__ import annotations

from collections.abc import Iterable

from services.gateway.core.allowance import Subject
from services.gateway.core.directory import Target
from services.gateway.core.refusal import Refusal, bad_request
from services.gateway.core.tool_calls import PARSERS
from services.gateway.core.wish import Wish


def misfit(wish: Wish, target: Target) -> Refusal | None:
    """What does not fit, or None. A base whose vocabulary nobody has counted is not looked at."""
    if wish.tools is not None and target.tool_parser not in PARSERS:
        message = "`tools` are not supported by this model: its base model has no tool-call parser."
        return bad_request(message, param="tools", code="unsupported_parameter")
    if not (size := target.vocabulary_size):
        return None
    if (foreign := max(wish.sampling.logit_bias, default=0)) >= size:
        return _foreign("logit_bias", foreign, size)
    foreign = max((max(prompt.token_ids, default=0) for prompt in wish.prompts), default=0)
    return _foreign("prompt", foreign, size) if foreign >= size else None


def outsized(wish: Wish, limited: Iterable[Subject]) -> Refusal | None:
    """More answers than one of these may ever have streams at once, or None: to come again would not help."""
    for subject in limited:
        if (most := subject.limits.streams) is not None and wish.choices > most:
            param = "n" if wish.n > 1 else "prompt"
            message = f"`{param}` asks for {wish.choices} answers, and {subject.name} may have {most} streams at once."
            return bad_request(message, param=param, code="invalid_value")
    return None


def _foreign(param: str, token_id: int, size: int) -> Refusal:
    message = f"`{param}` names token {token_id}, and this model has tokens 0 to {size - 1}."
    return bad_request(message, param=param, code="invalid_value")
