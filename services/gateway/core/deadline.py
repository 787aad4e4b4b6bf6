"""How long a client says that it will wait: in a header, since no OpenAI body has a place for it."""

from __future__ import annotations

import math
import re

import msgspec

from services.gateway.core import refusal
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Stream

HEADER = "x-request-timeout-ms"
_NUMBER = re.compile(r"\+?[0-9]{1,15}(\.[0-9]{0,9})?", re.ASCII)
_LONGEST_S = 86_400.0


def read(text: str | None) -> float | Refusal | None:
    """In seconds. An empty header says nothing, and more than a day is a day: the gateway's own limits hold beside
    it."""
    text = (text or "").strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not float(text):
        message = f"{HEADER} must be a number of milliseconds above 0, not {text[:40]!r}."
        return refusal.bad_request(message, param=HEADER, code="invalid_header")
    return min(_LONGEST_S, float(text) / 1000.0)


def with_deadline(stream: Stream, seconds: float | None, *, whole: bool) -> Stream:
    """`whole`: the client waits for all of the answer, and not for its first token."""
    if seconds is None:
        return stream
    return msgspec.structs.replace(stream, due_s=stream.began_s + seconds, whole=whole)


def left_s(stream: Stream, now_s: float) -> float:
    """How much of it is left for what the client waits for next; without end once a stream has begun."""
    return math.inf if stream.shown and not stream.whole else max(0.0, stream.due_s - now_s)


def timed_out(stream: Stream) -> Refusal:
    late = "is not whole" if stream.shown else "has not begun"
    message = f"The time that {HEADER} gave is over, and the answer {late}."
    return Refusal(status=504, message=message, type="server_error", code="deadline_exceeded", heals=True)
