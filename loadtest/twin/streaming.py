"""A request of the twin as the gateway's own stream, for the decisions about what goes wrong with it."""

from __future__ import annotations

from loadtest.twin.request import Attempt, Request
from services.gateway.core.stream import Phase, Stream
from services.replica_worker.core.admission import Refusal
from shared.messages.generation import Refused


def stream_of(request: Request) -> Stream:
    """As it stands. What the phases were entered at is known as far as deadlines need it."""
    attempt = request.attempt
    began_s = request.began_s if request.broke_at_s is None else request.broke_at_s
    return Stream(
        request_id=str(request.number),
        began_s=began_s,
        adapter=request.record.key,
        phase=Phase.CHOOSING if attempt is None else _phase(request, attempt),
        attempt=request.attempts,
        replica_id=request.replica_id,
        incarnation="" if attempt is None else attempt.incarnation,
        since_s=_since_s(request, attempt),
        tried=request.tried,
        dead=request.dead,
        shown=request.first_s is not None,
        trouble=request.trouble,
    )


def message_of(attempt: Attempt, refusal: Refusal) -> Refused:
    return Refused(
        request_id=attempt.id,
        replica_id=attempt.replica_id,
        code=refusal.code,
        message=refusal.reason,
        elsewhere=refusal.elsewhere,
        retry_after_s=refusal.retry_after_s,
    )


def _since_s(request: Request, attempt: Attempt | None) -> float:
    if attempt is None:
        return request.began_s if request.chooses_since_s is None else request.chooses_since_s
    return attempt.arrived_at_s if attempt.received else request.asked_at_s


def _phase(request: Request, attempt: Attempt) -> Phase:
    if attempt.streams:
        return Phase.STREAMING
    if attempt.begun:
        return Phase.ACCEPTED
    return Phase.QUEUED if attempt.received else Phase.ASKED
