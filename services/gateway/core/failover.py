"""An attempt that comes to nothing: who dropped it, whether another replica is asked, and from where that goes on."""

from __future__ import annotations

import msgspec

from services.gateway.core import refusal
from services.gateway.core.endings import abandon, fail
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Phase, Reroute, Step, Stream, StreamPolicy, Wait

SILENT = "silent"
"""The cause of `silent`."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt is over. `cause` is one word for the counter; `tell` the replica, if it may still work on it."""

    cause: str
    reason: str
    tell: bool


def lost(stream: Stream, reason: str, policy: StreamPolicy, now_s: float) -> Step:
    """The replica died, perhaps of this request: after some of those nobody else is to die of it."""
    if stream.phase in (Phase.CHOOSING, Phase.DONE):
        return stream, ()
    if stream.phase is Phase.ASKED:
        stream = _untried(stream)  # nothing shows that it had the request: the process in its place may be asked
    else:
        stream = msgspec.structs.replace(stream, dead=(*stream.dead, stream.replica_id))
    if len(stream.dead) >= policy.most_deaths:
        message = f"{len(stream.dead)} replicas were lost while they worked on this request, so no other is asked."
        return fail(stream, refusal.failed(message, code="replica_lost"), tell=True)
    return elsewhere(stream, Trouble(cause="lost", reason=reason, tell=True), policy, now_s)


def given_up(stream: Stream, reason: str, policy: StreamPolicy, now_s: float) -> Step:
    """The replica lives, and what it does for this request is over or of no use."""
    if stream.phase in (Phase.CHOOSING, Phase.DONE):
        return stream, ()
    return elsewhere(stream, Trouble(cause="given_up", reason=reason, tell=True), policy, now_s)


def unanswered(stream: Stream, answered_id: str, policy: StreamPolicy, now_s: float) -> Step:
    """The bus says that nobody serves the replica's subject. Nothing was begun there, so it may be asked again once
    it is heard of."""
    if answered_id != stream.bus_id or stream.phase is not Phase.ASKED:
        return stream, ()
    trouble = Trouble(cause="no_responders", reason=f"Replica {stream.replica_id} is gone.", tell=False)
    return elsewhere(_untried(stream), trouble, policy, now_s)


def silent(stream: Stream, trouble: Trouble, policy: StreamPolicy, now_s: float) -> Step:
    """The replica may just have been held up, and be the only one that is left: it is asked once more when it is heard
    of. What it was asked before it leaves off: it hears of both in their order. Only some are forgiven: where all are
    silent, nobody waits for one after the other."""
    if stream.replica_id not in stream.silent and len(stream.silent) < policy.most_attempts:
        stream = msgspec.structs.replace(_untried(stream), silent=(*stream.silent, stream.replica_id))
    return elsewhere(stream, trouble, policy, now_s)


def undelivered(stream: Stream, asked_id: str, why: Refusal, policy: StreamPolicy, now_s: float) -> Step:
    """The bus did not take the question. If that heals, it is put again a little later."""
    if asked_id != stream.bus_id or stream.phase is not Phase.ASKED:
        return stream, ()
    if not why.heals or now_s - stream.began_s >= policy.patience_s:
        return fail(stream, why)
    waits = msgspec.structs.replace(_untried(stream), phase=Phase.CHOOSING)
    return waits, (abandon(stream, why.message, tell=False), Wait())


def elsewhere(stream: Stream, trouble: Trouble, policy: StreamPolicy, now_s: float) -> Step:
    """Whoever has produced something is followed by somebody who goes on from there: time and attempts count anew
    then, and but for those that died nobody is left out."""
    dropped = abandon(stream, trouble.reason, tell=trouble.tell)
    if stream.phase is Phase.STREAMING:
        stream = msgspec.structs.replace(stream, began_s=now_s, tried=stream.dead, silent=(), last_refusal=None)
    elif len(stream.tried) >= policy.most_attempts:
        asked = len({*stream.tried, *stream.silent})
        message = f"{asked} replicas could not take the request: {trouble.reason}"
        gone = refusal.unavailable(message, code=trouble.cause)
        return fail(stream, stream.last_refusal or gone, tell=trouble.tell)
    chooses = msgspec.structs.replace(stream, phase=Phase.CHOOSING, since_s=now_s, trouble=trouble.reason)
    return chooses, (dropped, Reroute(cause=trouble.cause, reason=trouble.reason))


def _untried(stream: Stream) -> Stream:
    return msgspec.structs.replace(stream, tried=stream.tried[:-1])
