"""What vLLM says of one request after one step, as the port says it."""

from __future__ import annotations

from collections.abc import Iterator

from vllm.outputs import RequestOutput

from services.replica_worker.engine.port import StepToken
from services.replica_worker.engine.sequence import Outcome, Sequence

from .wording import probe_of

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
        token = StepToken(sequence.request.request_id, token_id, sequence.next_position, finish, cached_tokens=cached)
        sequence.append(token_id)
        yield sequence, token
    if answer.finish_reason is not None and answer.finish_reason not in _ENDS:
        yield _error(sequence, f"vLLM ended the request with {answer.finish_reason!r}")


def _error(sequence: Sequence, sentence: str) -> Outcome:
    return sequence, StepToken(sequence.request.request_id, -1, sequence.next_position, error=sentence)
