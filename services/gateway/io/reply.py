"""One request as an ASGI application sees it, and what answers it on its way into the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from services.gateway.io.line import EXTENSION, Flow, Line, Turn
from services.gateway.io.reading import Head
from services.gateway.io.turning_out import FAILED, refuser
from shared.runtime.bell import Bell
from shared.runtime.logs import get_logger

_MOST_WAITING = 64 << 10
"""Bytes of a body that nobody has taken before no more are read."""
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_BODILESS = (204, 304)
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_FIRST_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}

_log = get_logger(__name__)


class Carrier(Protocol):
    """The connection."""

    transport: asyncio.Transport
    flow: Flow
    server_state: ServerState

    def answered(self) -> None:
        """The answer is whole."""


class Reply:
    """`keeps` the connection open for another request. What was asked is let go of as soon as `run` has begun: open
    streams are many."""

    __slots__ = (
        "_app", "_bell", "_body", "_carrier", "_expects", "_head", "_is_silent", "_left_bytes", "begun", "keeps",
        "line", "more_body", "over",
    )  # fmt: skip

    def __init__(self, carrier: Carrier, app: ASGIApp, head: Head, line: Line) -> None:
        self._carrier = carrier
        self._app = app
        self._head: Head | None = head
        self._expects = head.expects and line.chunked
        self._body = bytearray()
        self._bell = Bell()
        self._is_silent = head.method == "HEAD"
        self._left_bytes: int | None = None
        """Of a body whose size was announced."""
        self.line = line
        self.keeps = head.keeps_alive and line.chunked
        self.more_body = True
        self.begun = False
        self.over = False

    async def run(self) -> None:
        """Once. Whatever goes wrong, the client finds it where it looks for it, or sees the connection end."""
        try:
            await self._app(self._scope(), self.receive, self.send)
        except Exception as error:
            _log.exception("an application failed at a request", error=error)
            await self._fail()
        except BaseException:
            self._carrier.transport.close()
            raise
        else:
            if not self.over and not self.line.gone:
                _log.error("an application left an answer unfinished")
                await self._fail()

    @property
    def waiting_bytes(self) -> int:
        """What is kept of it until its turn comes."""
        return len(self._body) + (self._head.size_bytes if self._head is not None else 0)

    def hear(self, body: bytes) -> None:
        if not self.over:
            self._body += body
            if len(self._body) > _MOST_WAITING and self._head is None:
                self._carrier.flow.pause_reading()
            self._bell.set()

    def hear_end(self) -> None:
        self.more_body = False
        self.line.whole = True
        self._bell.set()

    def lose(self) -> None:
        """The connection is no more."""
        self.line.lose()
        self._bell.set()

    async def receive(self) -> Message:
        if self._expects and not self.line.gone and not self._carrier.transport.is_closing():
            self._carrier.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects = False
        if not self.line.gone and not self.over:
            self._carrier.flow.resume_reading()
            await self._bell.wait()
            self._bell.clear()
        if self.line.gone or self.over:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Raises RuntimeError for what is no answer by HTTP."""
        if self._carrier.flow.stalled and not self.line.gone:
            await self._carrier.flow.room().wait()
        if self.line.gone:
            return
        if not self.begun:
            self._begin(message["status"], message.get("headers", ()))
        elif not self.over:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError("the answer is over, and something was to be added to it")

    def _scope(self) -> Scope:
        head, self._head = self._head, None
        assert head is not None, "a reply runs once"
        return {
            "type": "http", "asgi": _ASGI, "http_version": head.version, "method": head.method, "scheme": "http",
            "path": head.path, "raw_path": head.raw_path, "query_string": head.query, "root_path": "",
            "headers": head.headers, "server": None, "client": None, "extensions": {EXTENSION: self.line},
        }  # fmt: skip

    async def _fail(self) -> None:
        """What has begun has no end that would be true."""
        if self.begun:
            self.line.flush()
            self._carrier.transport.close()
        else:
            await refuser(FAILED)({}, self.receive, self.send)

    def _begin(self, status: int, given: Iterable[tuple[bytes, bytes]]) -> None:
        if self._expects and self.more_body:  # whoever was never asked for it may send something else in its place
            self.keeps = False
        self._expects = False
        headers = [*self._carrier.server_state.default_headers, *given]
        self._is_silent = self._is_silent or status in _BODILESS
        length = next((int(value) for name, value in headers if name == b"content-length"), None)
        if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
            self.keeps = False
        elif not self.keeps:
            headers.append(_CLOSE)
        if length is not None or self._is_silent:
            self._left_bytes = 0 if self._is_silent else length
        elif self.line.chunked:
            headers.append(_CHUNKED)
        self.line.begin(_raw_head(status, headers))
        self.begun = True

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._is_silent:
            body = b""
        if self._left_bytes is not None:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (is_last and self._left_bytes):
                raise RuntimeError("a body has not as many bytes as its content-length says")
        if self._left_bytes is not None:
            self.line.write_raw(body)
        elif is_last:
            self.line.end(body)
        elif body:
            self.line.write(body)
        if is_last:
            self._end()

    def _end(self) -> None:
        self.over = True
        self._bell.set()
        self._carrier.answered()


def reply_to(head: Head, carrier: Carrier, app: ASGIApp, turn: Turn) -> Reply:
    """To a request whose body is still to come."""
    line = Line(carrier.transport, carrier.flow, turn, chunked=head.version == "1.1")
    return Reply(carrier, app, head, line)


def _raw_head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Raises RuntimeError if a header holds the end of a line, and with it the beginning of what nobody meant."""
    first = _FIRST_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    head = b"".join([first, *[b"%b: %b\r\n" % header for header in headers], b"\r\n"])
    if head.count(b"\n") != len(headers) + 2 or head.count(b"\r") != len(headers) + 2:
        raise RuntimeError("a header has more than one line")
    return head
