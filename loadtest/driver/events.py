"""The stream of one answer: when its tokens came, and how it ended.

All tokens but the last are counted in bytes and not looked into: a chunk that goes on says
`"finish_reason":null` once, and no text can say it, since its quotes would be escaped. Everything else is decoded.
"""

from __future__ import annotations

from typing import Any

import msgspec

_GOES_ON = b'"finish_reason":null'
_GOES_ON_SPACED = b'"finish_reason": null'


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Words(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Words | None = None
    message: _Words | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event, or the whole body of an answer that is no stream."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None

    @property
    def text(self) -> str:
        said = (choice.delta or choice.message for choice in self.choices)
        return "".join(words.content or "" for words in said if words is not None)

    @property
    def finish(self) -> str | None:
        return next((choice.finish_reason for choice in self.choices if choice.finish_reason is not None), None)

    @property
    def failure(self) -> str:
        """What an error says, "" without one."""
        if isinstance(self.error, dict):
            return str(self.error.get("message") or "an error without a message")
        return str(self.error or "")


decode = msgspec.json.Decoder(Chunk).decode


class Events:
    """`times_s` are the moments at which tokens came, `pieces` how many chunks brought them. With `keep` the text is
    there in the end, too."""

    __slots__ = ("_held", "_keep", "_kept", "done", "failure", "finish", "pieces", "times_s", "usage")

    def __init__(self, *, keep: bool) -> None:
        self.times_s: list[float] = []
        self.pieces = 0
        self.usage = Usage()
        self.finish: str | None = None
        self.done = False
        self.failure = ""
        self._keep = keep
        self._kept: list[bytes] = []
        self._held = b""

    def take(self, payload: bytes, now_s: float) -> None:
        """Raises msgspec.MsgspecError for an event that is none."""
        if b"\r" in payload:  # JSON has no raw line breaks: these end lines
            payload = payload.replace(b"\r", b"")
        if self._held:
            payload = self._held + payload
        if payload.endswith(b"\n\n"):
            self._held = b""
        else:
            whole, end, self._held = payload.rpartition(b"\n\n")
            payload = whole + end
        if not payload:
            return
        if self._keep:
            self._kept.append(payload)
        count = payload.count(b"\n\n")
        if payload.count(_GOES_ON) == count or payload.count(_GOES_ON_SPACED) == count:
            self.pieces += count
            self.times_s.append(now_s)
        else:
            self._look(payload, now_s)

    @property
    def whole(self) -> bool:
        """A clean end without a finish reason is a lost answer, not a short one."""
        return self.finish is not None and self.done and not self.failure

    def text(self) -> str:
        """All that it said, if it was kept."""
        said = (payload for kept in self._kept for payload in _payloads(kept))
        return "".join(decode(payload).text for payload in said if payload != b"[DONE]")

    def _look(self, events: bytes, now_s: float) -> None:
        before = self.pieces
        for payload in _payloads(events):
            if payload == b"[DONE]":
                self.done = True
                continue
            chunk = decode(payload)
            self.pieces += bool(chunk.choices)
            self.usage = chunk.usage or self.usage
            self.finish = chunk.finish or self.finish
            self.failure = chunk.failure or self.failure
        if self.pieces > before:
            self.times_s.append(now_s)


def _payloads(events: bytes) -> list[bytes]:
    """What the `data:` lines say."""
    return [line[5:].strip() for line in events.split(b"\n") if line.startswith(b"data:")]
