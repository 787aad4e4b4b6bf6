"""The tokens that an engine without a model produces: a pure function of all that may decide a token."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from services.replica_worker.engine.port import EngineRequest, Probe
from services.replica_worker.engine.shaping import Logprobs

from .policy import TimedPolicy

BASE_DIGEST = ""
_PROBE_LOGPROB_STEP = 0.5


def token_at(policy: TimedPolicy, digest: str, request: EngineRequest, position: int) -> int:
    """Depends on the adapter's digest, the original prompt, the position and, unless greedy, the seed.

    Tokens that another replica produced already are no part of the prompt, so a continuation goes on
    with the same stream.
    """
    prompt = request.prompt_token_ids[: len(request.prompt_token_ids) - request.first_position]
    seed = request.seed if request.temperature > 0 else "greedy"
    drawn = _draw(digest, tuple(prompt), seed, position)
    if policy.eos_one_in and drawn % policy.eos_one_in == 0:
        return policy.eos_token_ids[0]
    return _ordinary(policy, drawn // max(1, policy.eos_one_in))


def probe_of(policy: TimedPolicy, digest: str, prompt: Sequence[int], top: int) -> Probe:
    """A distribution that differs between adapters and prompts, best token first."""
    first = _draw(digest, tuple(prompt), "probe", 0)
    count = min(top, policy.vocabulary_size - policy.lowest_token_id)
    return Probe(
        finite=True,
        token_ids=tuple(_ordinary(policy, first + rank) for rank in range(count)),
        logprobs=tuple(-_PROBE_LOGPROB_STEP * (1 + rank) for rank in range(count)),
    )


def logprobs_of(policy: TimedPolicy, digest: str, request: EngineRequest, token_id: int) -> Logprobs | None:
    """Of a token that was made up, made up as well, if the request wants to hear of them. Penalties and bias change
    nothing here: there are no logits."""
    if request.shaping is None or request.shaping.top_logprobs is None:
        return None
    probe = probe_of(policy, digest, (token_id,), request.shaping.top_logprobs)
    return Logprobs(-_PROBE_LOGPROB_STEP, probe.token_ids, probe.logprobs)


def _draw(digest: str, prompt: tuple[int, ...], seed: int | str, position: int) -> int:
    key = repr((digest, prompt, seed, position)).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def _ordinary(policy: TimedPolicy, drawn: int) -> int:
    return policy.lowest_token_id + drawn % (policy.vocabulary_size - policy.lowest_token_id)
