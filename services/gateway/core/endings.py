"""A request that ends before its answer is whole, and the attempt that is dropped with it."""

from __future__ import annotations

import msgspec

from services.gateway.core import refusal
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Abandon, Fail, Phase, Step, Stream


def fail(stream: Stream, why: Refusal, *, tell: bool = False) -> Step:
    """Nothing happens to a request that is over."""
    if stream.phase is Phase.DONE:
        return stream, ()
    asked = stream.phase is not Phase.CHOOSING
    dropped = (abandon(stream, why.message, tell=tell),) if asked else ()
    return msgspec.structs.replace(stream, phase=Phase.DONE), (*dropped, Fail(refusal=why))


def abandon(stream: Stream, reason: str, *, tell: bool) -> Abandon:
    return Abandon(replica_id=stream.replica_id, bus_id=stream.bus_id, tell=tell, reason=reason)


def left(stream: Stream, reason: str) -> Step:
    """Nobody reads any more."""
    return fail(stream, refusal.failed(reason, code=refusal.CLIENT_LEFT), tell=True)


def dropped(stream: Stream, reason: str) -> Step:
    """Another answer to the same request failed."""
    return fail(stream, refusal.failed(reason, code="other_choice_failed"), tell=True)


def shut_down(stream: Stream) -> Step:
    """This gateway ends before the request does: better a word than a stream that just stops."""
    return fail(stream, refusal.unavailable("This gateway is shutting down.", code="shutting_down"), tell=True)


def overflowed(stream: Stream, most_bytes: int) -> Step:
    """The reader is too slow for what the gateway may keep for it."""
    message = f"The client reads too slowly: {most_bytes} bytes wait for it."
    return fail(stream, refusal.failed(message, code="slow_reader"), tell=True)
