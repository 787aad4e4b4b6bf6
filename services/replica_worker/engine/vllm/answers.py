"""What vLLM says of one request after one step, as the port says it."""

from __future__ import annotations

from collections.abc import Iterator

from vllm.outputs import CompletionOutput, RequestOutput

from services.replica_worker.engine.grammar import Compiled
from services.replica_worker.engine.port import StepToken
from services.replica_worker.engine.sequence import Outcome, Sequence
from services.replica_worker.engine.shaping import Logprobs

from .wording import logprobs_of, probe_of

_ENDS = ("stop", "length")


def outcomes(sequence: Sequence, output: RequestOutput | Exception) -> Iterator[Outcome]:
    """Usually one token; the last one carries the finish."""
    if isinstance(output, Exception):
        yield _error(sequence, str(output) or type(output).__name__)
        return
    answer = output.outputs[0]
    if sequence.probe_top:
        found = {token_id: entry.logprob for token_id, entry in answer.logprobs[0].items()} if answer.logprobs else {}
        yield sequence, probe_of(found, sequence.probe_top)
        return
    for at, token_id in enumerate(answer.token_ids, start=1):
        finish = answer.finish_reason if at == len(answer.token_ids) and answer.finish_reason in _ENDS else None
        cached = 0 if sequence.produced_tokens else output.num_cached_tokens or 0
        if finish == "stop" and _broken_off(sequence):
            yield _error(sequence, "the JSON schema could not be followed any further")
            return
        position, told = sequence.next_position, _told(sequence, answer, at - 1)
        sequence.append(token_id)
        id_ = sequence.request.request_id
        yield sequence, StepToken(id_, token_id, position, finish, cached_tokens=cached, logprobs=told)
    if answer.finish_reason is not None and answer.finish_reason not in _ENDS:
        yield _error(sequence, f"vLLM ended the request with {answer.finish_reason!r}")


def _broken_off(sequence: Sequence) -> bool:
    """vLLM's worker can only end an answer; that one was ended before its JSON was whole is seen here."""
    request = sequence.request
    grammar = None if request.shaping is None else request.shaping.grammar
    prompt_tokens = len(request.prompt_token_ids) - request.first_position
    return isinstance(grammar, Compiled) and not grammar.completed_by(sequence.token_ids[prompt_tokens:])


def _told(sequence: Sequence, answer: CompletionOutput, at: int) -> Logprobs | None:
    shaping = sequence.request.shaping
    if shaping is None or shaping.top_logprobs is None or answer.logprobs is None:
        return None
    found = {token_id: entry.logprob for token_id, entry in answer.logprobs[at].items()}
    return logprobs_of(found, answer.token_ids[at], shaping.top_logprobs)


def _error(sequence: Sequence, sentence: str) -> Outcome:
    return sequence, StepToken(sequence.request.request_id, -1, sequence.next_position, error=sentence)
