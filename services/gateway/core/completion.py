"""What every answer repeats, the bytes of a plain chat's tokens, and what all answers end with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Deliver
from shared.messages.generation import Usage

DONE = b"data: [DONE]\n\n"

_GOES_ON = b'},"finish_reason":null}]}\n\n'
_encode = msgspec.json.encode


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What every chunk of one answer repeats. `model` is the name that the client asked for."""

    completion_id: str
    created_s: int
    model: str

    def event_start(self, kind: str) -> bytes:
        """An event up to its first choice."""
        return b'data: {"id":%b,"object":%b,"created":%d,"model":%b,"choices":[' % (
            _encode(self.completion_id), _encode(kind), self.created_s, _encode(self.model),
        )  # fmt: skip


class ChunkWriter:
    """A template around each token's text: nothing is built per token but the bytes themselves."""

    __slots__ = ("_delta", "_first_delta")

    def __init__(self, heading: Heading, index: int = 0) -> None:
        start = heading.event_start("chat.completion.chunk")
        self._delta = start + b'{"index":%d,"delta":{"content":' % index
        self._first_delta = start + b'{"index":%d,"delta":{"role":"assistant","content":' % index

    def piece(self, piece: Deliver) -> bytes:
        """Nothing, while a character is not whole."""
        if piece.finish is not None:
            return self.last(piece.text, first=piece.first, finish_reason=piece.finish.reason)
        if piece.first:
            return self.token(piece.text, first=True)
        return self._delta + _encode(piece.text) + _GOES_ON if piece.text else b""

    def token(self, text: str, *, first: bool) -> bytes:
        """The role rides with the first token, which is what load tools time."""
        return (self._first_delta if first else self._delta) + _encode(text) + _GOES_ON

    def last(self, text: str, *, first: bool, finish_reason: str) -> bytes:
        start = self._first_delta if first else self._delta
        return start + _encode(text) + b'},"finish_reason":' + _encode(finish_reason) + b"}]}\n\n"


def usage_event(heading: Heading, kind: str, usage: Usage) -> bytes:
    return heading.event_start(kind) + b'],"usage":' + _encode(usage_fields(usage)) + b"}\n\n"


def error_event(refusal: Refusal) -> bytes:
    """The last thing in a stream that failed: no end marker follows it."""
    return b"data: " + refusal.envelope + b"\n\n"


def usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def total_usage(usages: Sequence[Usage], n: int) -> Usage:
    """Of all answers, each prompt counted once for its `n`."""
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages[::n]),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages[::n]),
    )
