"""The life of one request: asked, queued, accepted, streaming, done; and what each thing heard leads to.

Functions here take a state and return the next one with the actions that the shell applies, in order. What
is about another attempt than the current one changes nothing.
"""

from __future__ import annotations

import msgspec

from services.gateway.core import deadline, refusal
from services.gateway.core.endings import abandon, fail
from services.gateway.core.failover import SILENT, Trouble, elsewhere, given_up, lost, silent
from services.gateway.core.question import Choice, NoChoice
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Action, Ask, Deliver, Open, Phase, Step, Stream, StreamPolicy, Wait
from shared.messages.generation import Accepted, Finish, Queued, Refused, TokenChunk
from shared.messages.identity import AdapterKey


def chosen(stream: Stream, choice: Choice | NoChoice, policy: StreamPolicy, now_s: float) -> Step:
    """The answer to Reroute and to Wait, and how a request begins."""
    if stream.phase is not Phase.CHOOSING:
        return stream, ()
    if not deadline.left_s(stream, now_s):
        return fail(stream, stream.last_refusal or deadline.timed_out(stream))
    if isinstance(choice, NoChoice):
        patient = now_s - stream.since_s < policy.patience_s and now_s - stream.began_s < policy.first_token_s
        if choice.may_change and patient:
            return stream, (Wait(),)
        return fail(stream, stream.last_refusal or _nobody_left(stream, choice))
    attempt = stream.attempt + 1
    asked = msgspec.structs.replace(
        stream, phase=Phase.ASKED, attempt=attempt, replica_id=choice.replica_id, since_s=now_s,
        incarnation=choice.incarnation, tried=(*stream.tried, choice.replica_id), early=(),
    )  # fmt: skip
    ask = Ask(
        replica_id=choice.replica_id, pool_id=choice.pool_id, bus_id=asked.bus_id, attempt=stream.attempt,
        reason=choice.reason,
    )  # fmt: skip
    return asked, (ask,)


def queued(stream: Stream, message: Queued, now_s: float) -> Step:
    if message.request_id != stream.bus_id or stream.phase is not Phase.ASKED:
        return stream, ()
    heard = msgspec.structs.replace(stream, phase=Phase.QUEUED, incarnation=message.incarnation, since_s=now_s)
    return heard, ()


def asked_again(stream: Stream, now_s: float) -> Stream:
    """The same question went to the same replica once more: what it has to say has as long to come as before."""
    return msgspec.structs.replace(stream, since_s=now_s)


def accepted(stream: Stream, message: Accepted, policy: StreamPolicy, now_s: float) -> Step:
    """The response may begin, unless it has long begun; chunks that overtook this answer follow at once."""
    if message.request_id != stream.bus_id or stream.phase not in (Phase.ASKED, Phase.QUEUED):
        return stream, ()
    if (message.adapter_id, message.digest) != _identity(stream.adapter):
        reason = f"Replica {stream.replica_id} accepted another adapter than it was asked for."
        return lost(stream, reason, policy, now_s)
    actions: tuple[Action, ...] = () if stream.shown else (Open(accepted=message),)
    state = msgspec.structs.replace(
        stream, phase=Phase.ACCEPTED, incarnation=message.incarnation, since_s=now_s, early=()
    )
    for early in stream.early:
        state, more = chunk(state, early, policy, now_s)
        actions += more
    return state, actions


def refused(stream: Stream, message: Refused, policy: StreamPolicy, now_s: float) -> Step:
    """Also after Accepted, as long as this replica has produced no token."""
    if message.request_id != stream.bus_id or stream.phase in (Phase.CHOOSING, Phase.STREAMING, Phase.DONE):
        return stream, ()
    why = refusal.of_replica(message, stream.asked_by)
    if not message.elsewhere:
        return fail(stream, why)
    remembered = msgspec.structs.replace(stream, last_refusal=refusal.sooner(stream.last_refusal, why))
    return elsewhere(remembered, Trouble(cause=message.code, reason=message.message, tell=False), policy, now_s)


def chunk(stream: Stream, piece: TokenChunk, policy: StreamPolicy, now_s: float) -> Step:
    """The hot path: one token for the client, each position once and in order.

    A last chunk without tokens stands where the next token would.
    """
    if piece.request_id != stream.bus_id or stream.phase in (Phase.CHOOSING, Phase.DONE):
        return stream, ()
    if stream.phase in (Phase.ASKED, Phase.QUEUED):
        since_s = stream.since_s if stream.early else now_s
        return msgspec.structs.replace(stream, early=(*stream.early, piece), since_s=since_s), ()
    tokens = len(piece.token_ids)
    if piece.position > stream.next_position:
        return given_up(stream, f"Tokens of replica {stream.replica_id} were lost on the way.", policy, now_s)
    if tokens and piece.position < stream.next_position:
        return stream, ()
    if piece.finish is not None:
        return _finish(stream, piece, piece.finish, policy, now_s)
    state = msgspec.structs.replace(
        stream, phase=Phase.STREAMING, since_s=now_s, next_position=stream.next_position + tokens, shown=True
    )
    text = Deliver(text=piece.text, token_ids=piece.token_ids, first=not stream.shown, logprobs=piece.logprobs)
    return state, (text,)


def gone_on(stream: Stream, next_position: int, now_s: float) -> Stream:
    """As `chunk` would leave a stream that streams, after plain tokens up to that position, the last of them now."""
    return msgspec.structs.replace(stream, since_s=now_s, next_position=next_position)


def tick(stream: Stream, policy: StreamPolicy, now_s: float) -> Step:
    """Deadlines."""
    if stream.phase not in (Phase.CHOOSING, Phase.DONE) and not deadline.left_s(stream, now_s):
        return fail(stream, deadline.timed_out(stream), tell=True)
    if stream.phase is not Phase.STREAMING and now_s - stream.began_s > policy.first_token_s:
        late = refusal.unavailable(f"No token came within {policy.first_token_s:g} s.", code="no_token_in_time")
        return fail(stream, late, tell=True)
    if (trouble := _overdue(stream, policy, now_s - stream.since_s)) is not None:
        return (silent if trouble.cause == SILENT else elsewhere)(stream, trouble, policy, now_s)
    if stream.phase in (Phase.ACCEPTED, Phase.STREAMING) and now_s - stream.since_s > policy.stall_s:
        return lost(stream, f"Replica {stream.replica_id} produced no token for {policy.stall_s:g} s.", policy, now_s)
    return stream, ()


def _overdue(stream: Stream, policy: StreamPolicy, waited_s: float) -> Trouble | None:
    """Of the words that come before a token, one that should have come by now. Tokens that came without any say that
    it was lost on the way."""
    replica = f"Replica {stream.replica_id}"
    match stream.phase:
        case Phase.ASKED | Phase.QUEUED if stream.early and waited_s > policy.queued_s:
            return Trouble(cause="unaccepted", reason=f"{replica} began and its word for it was lost.", tell=True)
        case Phase.ASKED if waited_s > policy.queued_s:
            reason = f"{replica} gave no sign of life within {policy.queued_s:g} s."
            return Trouble(cause=SILENT, reason=reason, tell=True)
        case Phase.QUEUED if waited_s > policy.accept_s:
            reason = f"{replica} did not begin within {policy.accept_s:g} s."
            return Trouble(cause="accept_deadline", reason=reason, tell=True)
    return None


def _identity(adapter: AdapterKey | None) -> tuple[str | None, str | None]:
    return (adapter.adapter_id, adapter.digest) if adapter is not None else (None, None)


def _finish(stream: Stream, piece: TokenChunk, finish: Finish, policy: StreamPolicy, now_s: float) -> Step:
    if finish.reason in ("error", "cancelled"):
        over = lost if finish.reason == "error" else given_up
        return over(stream, f"The replica gave up: {finish.error or finish.reason}.", policy, now_s)
    done = msgspec.structs.replace(stream, phase=Phase.DONE, shown=True)
    last = Deliver(
        text=piece.text, token_ids=piece.token_ids, first=not stream.shown, finish=finish, logprobs=piece.logprobs
    )
    return done, (last, abandon(stream, "finished", tell=False))


def _nobody_left(stream: Stream, choice: NoChoice) -> Refusal:
    """That all were tried says nothing: what became of the last attempt belongs to it."""
    reason = f"{choice.reason.removesuffix('.')}: {stream.trouble}" if stream.trouble else choice.reason
    return refusal.nobody(reason, choice.code, choice.retry_after_s)
