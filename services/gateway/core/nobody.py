"""Why no replica can have a request, and whether that may change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.gateway.core.fleet import Fleet
from services.gateway.core.pool import Pool
from services.gateway.core.question import NoChoice, Question
from services.gateway.core.replica import Seat

_NAMED = 5


def why_nobody(fleet: Fleet, question: Question, pools: Sequence[Pool], now_s: float) -> NoChoice:
    """`pools` are all that could have served it. Where all that is in the way is that loads of the adapter failed,
    waiting helps nobody: the client is told when to come again."""
    seats = sorted(_concerned(question, pools), key=lambda seat: seat.replica_id)
    if not seats:
        return NoChoice(reason="No replica serves this model's pool at the moment.", may_change=not question.tried)
    alone_s = {seat.replica_id: _left_alone_s(fleet, question, seat, now_s) for seat in seats}
    against = [f"{seat.replica_id}: {_against(question, seat, alone_s[seat.replica_id])}" for seat in seats[:_NAMED]]
    reason = f"No replica can take the request ({'; '.join(against)})."
    untried = [seat for seat in seats if seat.replica_id not in question.tried]
    failed = [seat for seat in untried if not seat.against()]
    if failed and len(failed) == len(untried):
        soonest_s = min(alone_s[seat.replica_id] for seat in failed)
        return NoChoice(reason=reason, code="adapter_unavailable", retry_after_s=soonest_s)
    return NoChoice(reason=reason, may_change=bool(untried) or not question.tried)


def _concerned(question: Question, pools: Sequence[Pool]) -> Iterator[Seat]:
    """Merged replicas of another adapter are nobody's business here."""
    for pool in pools:
        for seat in pool.seats.values():
            if pool.pool_id in question.pool_ids or seat.against() or seat.replica.tier(question.adapter) == "gpu":
                yield seat


def _left_alone_s(fleet: Fleet, question: Question, seat: Seat, now_s: float) -> float:
    if question.adapter is None:
        return 0.0
    return max(0.0, fleet.quarantined_until_s(seat.replica_id, question.adapter) - now_s)


def _against(question: Question, seat: Seat, alone_s: float) -> str:
    if seat.replica_id in question.tried:
        return "already tried"
    return seat.against() or f"it could not load the adapter and is left alone with it for {alone_s:.0f} s more"
