"""OpenAI's two shapes of an answer as bytes: chunks of an event stream, and one whole body."""

from __future__ import annotations

from typing import Any

import msgspec

from services.gateway.core.refusal import Refusal
from shared.messages.generation import Usage

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What every chunk of one answer repeats. `model` is the name that the client asked for."""

    completion_id: str
    created_s: int
    model: str


class ChunkWriter:
    """A template around each token's text: nothing is built per token but the bytes themselves."""

    def __init__(self, heading: Heading) -> None:
        self._start = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            _encode(heading.completion_id), heading.created_s, _encode(heading.model),
        )  # fmt: skip
        self._delta = self._start + b'{"index":0,"delta":{"content":'
        self._first_delta = self._start + b'{"index":0,"delta":{"role":"assistant","content":'

    def token(self, text: str, *, first: bool) -> bytes:
        """The role rides with the first token, which is what load tools time."""
        return (self._first_delta if first else self._delta) + _encode(text) + b'},"finish_reason":null}]}\n\n'

    def last(self, text: str, *, first: bool, finish_reason: str) -> bytes:
        start = self._first_delta if first else self._delta
        return start + _encode(text) + b'},"finish_reason":' + _encode(finish_reason) + b"}]}\n\n"

    def usage(self, usage: Usage) -> bytes:
        return self._start + b'],"usage":' + _encode(_usage(usage)) + b"}\n\n"


def error_event(refusal: Refusal) -> bytes:
    """The last thing in a stream that failed: no end marker follows it."""
    return b"data: " + refusal.envelope + b"\n\n"


def whole(heading: Heading, text: str, finish_reason: str, usage: Usage) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None,
        "finish_reason": finish_reason,
    }
    return _encode(
        {
            "id": heading.completion_id,
            "object": "chat.completion",
            "created": heading.created_s,
            "model": heading.model,
            "choices": [choice],
            "usage": _usage(usage),
        }
    )


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
