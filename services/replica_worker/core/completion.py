"""Prompts of an evaluation set: whether they can be answered here, as which requests, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.replica_worker.core.admission import Refusal
from shared.messages.completions import CaseOutput, CasePrompt, Complete
from shared.messages.desired import AdapterRecord
from shared.messages.generation import Finish, GenerateRequest, Sampling
from shared.messages.identity import AdapterKey

NO_GATEWAY = ""
"""No gateway has an empty id."""
_NOBODY = ""
"""Whose prompts to the base model are: an account of its own among the customers'."""
_OF_THE_PROMPT = frozenset({"context_length_exceeded", "invalid_request"})


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica can apply. `only`: the adapter that is merged into its base, None if it serves any."""

    pool_id: str
    base_model_hash: str
    rank_limit: int
    only: AdapterKey | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one prompt; with neither `finish` nor `refusal` there was no end to it."""

    text: str
    finish: Finish | None
    refusal: Refusal | None


def refused(ask: Complete, host: Host) -> str:
    """Why none of it can be answered here; "" if it can."""
    ours, record = host.base_model_hash, ask.record
    if ask.base_model_hash != ours:
        return f"The prompts are for base model {ask.base_model_hash[:12]}, this replica runs {ours[:12]}."
    if host.only is not None and (record is None or record.key != host.only):
        return f"This replica serves {host.only.adapter_id} alone, merged into its base."
    if record is None or record.key == host.only:
        return ""
    if record.base_model_hash != ours:
        return (
            f"{record.adapter_id} belongs to base model {record.base_model_hash[:12]}, this replica runs {ours[:12]}."
        )
    rank = max((record.rank, *record.rank_pattern.values()))
    if rank > host.rank_limit:
        return f"{record.adapter_id} has rank {rank}, this replica's limit is {host.rank_limit}."
    return ""


def request_of(prompt: CasePrompt, record: AdapterRecord | None, host: Host, request_id: str) -> GenerateRequest:
    """Greedy, and in its customer's turn. Nobody else ever meets the prefixes that it leaves behind."""
    return GenerateRequest(
        request_id=request_id,
        gateway_id=NO_GATEWAY,
        tenant_id=_NOBODY if record is None else record.tenant_id,
        pool_id=host.pool_id,
        base_model_hash=host.base_model_hash,
        messages=prompt.messages,
        sampling=Sampling(seed=0, max_tokens=prompt.max_tokens, temperature=0.0),
        adapter_id=None if record is None else record.adapter_id,
        digest=None if record is None else record.digest,
        cache_salt="evaluation",
    )


def nothing_answered(endings: Sequence[Ending]) -> Refusal | None:
    """The first refusal, if every prompt met one and it is not the prompts that are at fault."""
    refusals = [each.refusal for each in endings if each.refusal is not None]
    if not refusals or len(refusals) < len(endings):
        return None
    return next((each for each in refusals if each.code not in _OF_THE_PROMPT), None)


def output_of(prompt: CasePrompt, ending: Ending, deadline_s: float) -> CaseOutput:
    finish, error = "deadline", f"It was not answered within {deadline_s:g} s."
    if ending.refusal is not None:
        finish, error = "refused", ending.refusal.reason
    elif ending.finish is not None and ending.finish.reason != "cancelled":
        finish, error = ending.finish.reason, ending.finish.error or ""
    tokens = 0 if ending.finish is None else ending.finish.usage.completion_tokens
    return CaseOutput(case=prompt.case, text=ending.text, tokens=tokens, finish=finish, error=error)
