"""The life of one request: asked, queued, accepted, streaming, done; and what each thing heard leads to.

Functions here take a state and return the next one with the actions that the shell applies, in order. What
is about another attempt than the current one changes nothing.
"""

from __future__ import annotations

import msgspec

from services.gateway.core import refusal
from services.gateway.core.question import Choice, NoChoice
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import (
    Abandon,
    Action,
    Ask,
    Deliver,
    Fail,
    Open,
    Phase,
    Reroute,
    Restart,
    Step,
    Stream,
    StreamPolicy,
    Wait,
)
from shared.messages.generation import Accepted, Finish, Queued, Refused, TokenChunk
from shared.messages.identity import AdapterKey


def chosen(stream: Stream, choice: Choice | NoChoice, policy: StreamPolicy, now_s: float) -> Step:
    """The answer to Reroute and to Wait, and how a request begins."""
    if stream.phase is not Phase.CHOOSING:
        return stream, ()
    if isinstance(choice, NoChoice):
        if choice.may_change and now_s - stream.began_s < policy.patience_s:
            return stream, (Wait(),)
        return _fail(stream, stream.last_refusal or _nobody_left(stream, choice))
    attempt = stream.attempt + 1
    asked = msgspec.structs.replace(
        stream, phase=Phase.ASKED, attempt=attempt, replica_id=choice.replica_id, incarnation="", since_s=now_s,
        tried=(*stream.tried, choice.replica_id), next_position=0, early=(),
    )  # fmt: skip
    ask = Ask(
        replica_id=choice.replica_id, pool_id=choice.pool_id, bus_id=asked.bus_id, attempt=stream.attempt,
        reason=choice.reason,
    )  # fmt: skip
    return asked, (ask,)


def unanswered(stream: Stream, answered_id: str, policy: StreamPolicy) -> Step:
    """The bus says that nobody serves the replica's subject: nothing was begun there."""
    if answered_id != stream.bus_id or stream.phase is not Phase.ASKED:
        return stream, ()
    return _elsewhere(stream, policy, "no_responders", f"Replica {stream.replica_id} is gone.", tell=False)


def queued(stream: Stream, message: Queued, now_s: float) -> Step:
    if message.request_id != stream.bus_id or stream.phase is not Phase.ASKED:
        return stream, ()
    heard = msgspec.structs.replace(stream, phase=Phase.QUEUED, incarnation=message.incarnation, since_s=now_s)
    return heard, ()


def accepted(stream: Stream, message: Accepted, policy: StreamPolicy, now_s: float) -> Step:
    """The response may begin; chunks that overtook this answer follow at once."""
    if message.request_id != stream.bus_id or stream.phase not in (Phase.ASKED, Phase.QUEUED):
        return stream, ()
    if (message.adapter_id, message.digest) != _identity(stream.adapter):
        return lost(stream, f"Replica {stream.replica_id} accepted another adapter than it was asked for.", policy)
    actions: tuple[Action, ...] = (Open(accepted=message),)
    state = msgspec.structs.replace(
        stream, phase=Phase.ACCEPTED, incarnation=message.incarnation, since_s=now_s, early=()
    )
    for early in stream.early:
        state, more = chunk(state, early, policy, now_s)
        actions += more
    return state, actions


def refused(stream: Stream, message: Refused, policy: StreamPolicy) -> Step:
    """Also after Accepted, as long as no token came."""
    if message.request_id != stream.bus_id or stream.phase in (Phase.CHOOSING, Phase.STREAMING, Phase.DONE):
        return stream, ()
    why = refusal.of_replica(message)
    if not message.elsewhere:
        return _fail(stream, why)
    remembered = msgspec.structs.replace(stream, last_refusal=why)
    return _elsewhere(remembered, policy, message.code, message.message, tell=False)


def chunk(stream: Stream, piece: TokenChunk, policy: StreamPolicy, now_s: float) -> Step:
    """The hot path: one token for the client, each position once and in order.

    A last chunk without tokens stands where the next token would.
    """
    if piece.request_id != stream.bus_id or stream.phase in (Phase.CHOOSING, Phase.DONE):
        return stream, ()
    if stream.phase in (Phase.ASKED, Phase.QUEUED):
        return msgspec.structs.replace(stream, early=(*stream.early, piece)), ()
    tokens = len(piece.token_ids)
    if piece.position > stream.next_position:
        return lost(stream, f"Tokens of replica {stream.replica_id} were lost on the way.", policy)
    if tokens and piece.position < stream.next_position:
        return stream, ()
    if piece.finish is not None:
        return _finish(stream, piece, piece.finish, policy)
    state = msgspec.structs.replace(
        stream, phase=Phase.STREAMING, since_s=now_s, next_position=stream.next_position + tokens, shown=True
    )
    return state, (Deliver(text=piece.text, tokens=tokens, first=not stream.shown),)


def lost(stream: Stream, reason: str, policy: StreamPolicy) -> Step:
    """The replica, or something that it said, is gone for good."""
    if stream.phase in (Phase.CHOOSING, Phase.DONE):
        return stream, ()
    died = msgspec.structs.replace(stream, deaths=stream.deaths + (stream.phase is not Phase.ASKED))
    if died.shown and not died.restartable:
        return _fail(died, refusal.failed(f"{reason} The answer is incomplete.", code="replica_lost"), tell=True)
    if died.deaths >= policy.most_deaths:
        message = f"{died.deaths} replicas were lost while they worked on this request, so no other is asked."
        return _fail(died, refusal.failed(message, code="replica_lost"), tell=True)
    return _elsewhere(died, policy, "lost", reason, tell=True)


def tick(stream: Stream, policy: StreamPolicy, now_s: float) -> Step:
    """Deadlines."""
    waited_s = now_s - stream.since_s
    if not stream.shown and now_s - stream.began_s > policy.first_token_s:
        late = refusal.unavailable(f"No token came within {policy.first_token_s:g} s.", code="deadline")
        return _fail(stream, late, tell=True)
    match stream.phase:
        case Phase.ASKED if waited_s > policy.queued_s:
            reason = f"Replica {stream.replica_id} gave no sign of life within {policy.queued_s:g} s."
            return _elsewhere(stream, policy, "silent", reason, tell=True)
        case Phase.QUEUED if waited_s > policy.accept_s:
            reason = f"Replica {stream.replica_id} did not begin within {policy.accept_s:g} s."
            return _elsewhere(stream, policy, "accept_deadline", reason, tell=True)
        case Phase.ACCEPTED | Phase.STREAMING if waited_s > policy.stall_s:
            return lost(stream, f"Replica {stream.replica_id} produced no token for {policy.stall_s:g} s.", policy)
    return stream, ()


def left(stream: Stream, reason: str) -> Step:
    """Nobody reads any more."""
    return _fail(stream, refusal.failed(reason, code="client_left"), tell=True)


def shut_down(stream: Stream) -> Step:
    """This gateway ends before the request does: better a word than a stream that just stops."""
    return _fail(stream, refusal.unavailable("This gateway is shutting down.", code="shutting_down"), tell=True)


def undelivered(stream: Stream, asked_id: str, why: Refusal) -> Step:
    """The bus did not take the question, so it would take no other either."""
    return _fail(stream, why) if asked_id == stream.bus_id else (stream, ())


def overflowed(stream: Stream, most_bytes: int) -> Step:
    """The reader is too slow for what the gateway may keep for it."""
    message = f"The client reads too slowly: {most_bytes} bytes wait for it."
    return _fail(stream, refusal.failed(message, code="slow_reader"), tell=True)


def _identity(adapter: AdapterKey | None) -> tuple[str | None, str | None]:
    return (adapter.adapter_id, adapter.digest) if adapter is not None else (None, None)


def _finish(stream: Stream, piece: TokenChunk, finish: Finish, policy: StreamPolicy) -> Step:
    if finish.reason in ("error", "cancelled"):
        return lost(stream, f"The replica gave up: {finish.error or finish.reason}.", policy)
    done = msgspec.structs.replace(stream, phase=Phase.DONE, shown=True)
    last = Deliver(text=piece.text, tokens=len(piece.token_ids), first=not stream.shown, finish=finish)
    return done, (last, _abandon(stream, "finished", tell=False))


def _elsewhere(stream: Stream, policy: StreamPolicy, cause: str, reason: str, *, tell: bool) -> Step:
    if stream.attempt >= policy.most_attempts:
        gone = refusal.unavailable(f"{stream.attempt} replicas could not take the request: {reason}", code=cause)
        return _fail(stream, stream.last_refusal or gone, tell=tell)
    actions: tuple[Action, ...] = (_abandon(stream, reason, tell), Reroute(cause=cause, reason=reason))
    if stream.shown:
        actions = (actions[0], Restart(), actions[1])
    return msgspec.structs.replace(stream, phase=Phase.CHOOSING, shown=False, trouble=reason), actions


def _nobody_left(stream: Stream, choice: NoChoice) -> Refusal:
    """That all were tried says nothing: what became of the last attempt belongs to it."""
    reason = f"{choice.reason.removesuffix('.')}: {stream.trouble}" if stream.trouble else choice.reason
    return refusal.nobody(reason, choice.code, choice.retry_after_s)


def _fail(stream: Stream, why: Refusal, *, tell: bool = False) -> Step:
    if stream.phase is Phase.DONE:
        return stream, ()
    asked = stream.phase is not Phase.CHOOSING
    abandon = (_abandon(stream, why.message, tell),) if asked else ()
    return msgspec.structs.replace(stream, phase=Phase.DONE), (*abandon, Fail(refusal=why))


def _abandon(stream: Stream, reason: str, tell: bool) -> Abandon:
    return Abandon(replica_id=stream.replica_id, bus_id=stream.bus_id, tell=tell, reason=reason)
