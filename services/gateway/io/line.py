"""The connection under one response, for those who write to it without being a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Scope

from shared.runtime.bell import Bell

EXTENSION = "lorafleet.line"


class Turn:
    """What is to be done when the loop has heard what there is to hear: one write a stream, however many frames that
    was."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._make)
        self._calls.append(call)

    def _make(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class Flow:
    """Whether a connection takes what is written to it, and whether it is read."""

    __slots__ = ("_reads", "_room", "_transport", "stalled")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._reads = True
        self._room: Bell | None = None
        self.stalled = False

    def room(self) -> Bell:
        """Set once it takes more. One waits for it at a time."""
        room = Bell()
        if self.stalled:
            self._room = room
        else:
            room.set()
        return room

    def pause_writing(self) -> None:
        self.stalled = True

    def resume_writing(self) -> None:
        self.stalled = False
        if self._room is not None:
            self._room.set()
            self._room = None

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reads:
            self._reads = True
            self._transport.resume_reading()


class Line:
    """`write` goes on with the body of a response whose head came through ASGI, which ends it as well: in chunks no
    bytes would be an end. Nothing is refused: whoever writes looks at `flow.stalled`, and is called by `on_room` when
    it is over. A head leaves with what is written next, or alone when the turn is over: each write wakes the client."""

    __slots__ = ("_head", "_transport", "chunked", "flow", "gone", "on_gone", "on_room", "turn", "whole")

    def __init__(self, transport: asyncio.Transport, flow: Flow, turn: Turn, *, chunked: bool = True) -> None:
        self._transport = transport
        self.flow = flow
        self._head = b""
        self.turn = turn
        self.chunked = chunked
        self.whole = False
        """Whether all of the request is here."""
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    def begin(self, head: bytes) -> None:
        self._head = head
        self.turn.add(self.flush)

    def flush(self) -> None:
        if not self._transport.is_closing():
            self.write_raw(b"")

    def write(self, body: bytes) -> None:
        self.write_raw(self._piece(body))

    def write_raw(self, content: bytes) -> None:
        """Of a body that is cut by its length, or not at all."""
        if self._head:
            content, self._head = self._head + content, b""
        if content and not self.gone:
            self._transport.write(content)

    def end(self, body: bytes) -> None:
        """With the last of it, of a body that the connection's end does not end."""
        last = self._piece(body) if body else b""
        self.write_raw(last + b"0\r\n\r\n" if self.chunked else last)

    def _piece(self, body: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(body), body) if self.chunked else body

    def cut(self) -> None:
        """End the connection: what was written so far has no end that would be true."""
        self._transport.abort()

    def watch(self, on_gone: Callable[[], None]) -> None:
        """`on_gone` is called when the client leaves, or has left already. The request has been read."""
        self.flow.resume_reading()  # whoever does not read does not see the end either
        self.on_gone = on_gone
        if self.gone:
            on_gone()

    def unwatch(self) -> None:
        self.on_gone = self.on_room = None

    def lose(self) -> None:
        """The connection is no more."""
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def make_room(self) -> None:
        if self.on_room is not None:
            self.on_room()


def line_of(scope: Scope) -> Line:
    line: Line = scope["extensions"][EXTENSION]
    return line
