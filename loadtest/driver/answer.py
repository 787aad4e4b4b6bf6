"""One answer of the public address, from the first byte to the last."""

from __future__ import annotations

from loadtest.driver.events import Chunk, Events, Usage, decode
from loadtest.driver.framing import Body, Head, body_of, split_head

OK = "ok"
CUT_OFF = "cut off"
ERROR_EVENT = "error event"
_SENTENCE = 200


class Answer:
    """`events` are those of a stream; what is none is kept until it is whole."""

    __slots__ = ("_body", "_chunk", "_parts", "events", "head", "received")

    def __init__(self, *, keep_text: bool = False) -> None:
        self.head: Head | None = None
        self.received = b""
        """Of a head that is not there in full."""
        self.events = Events(keep=keep_text)
        self._body: Body | None = None
        self._parts: list[bytes] | None = None
        self._chunk = Chunk()

    def feed(self, piece: bytes, now_s: float) -> bool:
        """Whether this was the last of it. Raises ValueError for what is no answer."""
        if self._body is None:
            if (found := split_head(self.received + piece)) is None:
                self.received += piece
                return False
            piece = self._begin(*found)
        body = self._body
        assert body is not None, "the head says what the body is"
        if payload := body.take(piece):
            if self._parts is None:
                self.events.take(payload, now_s)
            else:
                self._parts.append(payload)
        return body.over and self._end()

    def closed(self) -> None:
        """The connection has ended: so has an answer that has no other end. Raises ValueError for what is none."""
        if self._body is not None and not self._body.bounded:
            self._end()

    @property
    def begun(self) -> bool:
        return bool(self.received) or self.head is not None

    @property
    def usage(self) -> Usage:
        return self._chunk.usage or self.events.usage

    @property
    def cut_short(self) -> bool:
        """Whether it ended because it had as many tokens as it may have."""
        return (self._chunk.finish or self.events.finish) == "length"

    def header(self, name: str) -> str:
        return self.head.headers.get(name, "") if self.head is not None else ""

    def outcome(self) -> tuple[str, str]:
        """In a word how it ended ("ok" if well), and the sentence that says why."""
        if self.head is None:
            return CUT_OFF, "The connection ended before there was an answer."
        if self.head.status != 200:
            return str(self.head.status), self._chunk.failure
        if failure := self.events.failure or self._chunk.failure:
            return ERROR_EVENT, failure
        if self.events.whole or (self._parts is not None and self._chunk.finish is not None):
            return OK, ""
        return CUT_OFF, "The answer ended without a finish reason."

    def text(self) -> str:
        """All that it said, if it was to be kept."""
        return self._chunk.text or self.events.text()

    def _begin(self, head: Head, rest: bytes) -> bytes:
        self.head, self.received = head, b""
        self._body = body_of(head)
        if head.status != 200 or not head.headers.get("content-type", "").startswith("text/event-stream"):
            self._parts = []
        return rest

    def _end(self) -> bool:
        """A refusal need not be JSON, an answer has to."""
        if self._parts is not None and self.head is not None:
            said = b"".join(self._parts)
            try:
                self._chunk = decode(said)
            except ValueError:
                if self.head.status == 200:
                    raise
                self._chunk = Chunk(error=said[:_SENTENCE].decode(errors="replace"))
        return True
