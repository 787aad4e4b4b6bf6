"""What a request asks for that no engine with this vocabulary can do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.messages.generation import GenerateRequest

MOST_TOP_LOGPROBS = 20
"""As OpenAI allows."""


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` in one sentence, `about` the field at fault."""

    about: str
    reason: str


def objection(request: GenerateRequest, vocabulary_size: int) -> Objection | None:
    """Why it cannot be done; None: it can."""
    sampling = request.sampling
    if not (request.messages or request.prompt or request.prompt_token_ids):
        return Objection(about="prompt", reason="There are no messages and no prompt.")
    if (outside := _outside(request.prompt_token_ids, vocabulary_size)) is not None:
        reason = f"The prompt has token {outside}, which is outside this model's vocabulary of {vocabulary_size}."
        return Objection(about="prompt", reason=reason)
    if (outside := _outside(sampling.logit_bias, vocabulary_size)) is not None:
        reason = f"logit_bias names token {outside}, which is outside this model's vocabulary of {vocabulary_size}."
        return Objection(about="logit_bias", reason=reason)
    if not 0 <= (sampling.top_logprobs or 0) <= MOST_TOP_LOGPROBS:
        reason = f"top_logprobs is {sampling.top_logprobs}, which is outside 0 to {MOST_TOP_LOGPROBS}."
        return Objection(about="top_logprobs", reason=reason)
    return None


def _outside(token_ids: Iterable[int], vocabulary_size: int) -> int | None:
    return next((token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size), None)
