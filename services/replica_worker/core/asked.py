"""What a request asks for that no engine with this vocabulary can do."""

from __future__ import annotations

from collections.abc import Iterable

from shared.messages.generation import GenerateRequest

MOST_TOP_LOGPROBS = 20
"""As OpenAI allows."""


def objection(request: GenerateRequest, vocabulary_size: int) -> str | None:
    """Why it cannot be done, in one sentence; None: it can."""
    sampling = request.sampling
    if not (request.messages or request.prompt or request.prompt_token_ids):
        return "There are no messages and no prompt."
    if (outside := _outside(request.prompt_token_ids, vocabulary_size)) is not None:
        return f"The prompt has token {outside}, which is outside this model's vocabulary of {vocabulary_size}."
    if (outside := _outside(sampling.logit_bias, vocabulary_size)) is not None:
        return f"logit_bias names token {outside}, which is outside this model's vocabulary of {vocabulary_size}."
    if not 0 <= (sampling.top_logprobs or 0) <= MOST_TOP_LOGPROBS:
        return f"top_logprobs is {sampling.top_logprobs}, which is outside 0 to {MOST_TOP_LOGPROBS}."
    return None


def _outside(token_ids: Iterable[int], vocabulary_size: int) -> int | None:
    return next((token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size), None)
