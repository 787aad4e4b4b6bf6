"""The connection under one response, for those who write to it without being a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl

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


class Line:
    """`write` goes on with the chunked body of a response whose head has left through ASGI, which ends it as well: no
    bytes would be an end. Nothing is refused: whoever writes looks at `stalled`, and is called by `on_room` when it
    is over."""

    __slots__ = ("_flow", "_transport", "gone", "on_gone", "on_room", "turn")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, turn: Turn) -> None:
        self._transport = transport
        self._flow = flow
        self.turn = turn
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    @property
    def stalled(self) -> bool:
        """The client does not take what was written already."""
        return self._flow.write_paused

    def write(self, body: bytes) -> None:
        if not self.gone:
            self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def cut(self) -> None:
        """End the connection: what was written so far has no end that would be true."""
        self._transport.abort()

    @contextmanager
    def watched(self, on_gone: Callable[[], None]) -> Iterator[None]:
        """`on_gone` is called when the client leaves, or has left already. The request has been read."""
        self._flow.resume_reading()  # whoever does not read does not see the end either
        self.on_gone = on_gone
        if self.gone:
            on_gone()
        try:
            yield
        finally:
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
