"""Connections without sockets: what is sent to them and what they write, byte by byte."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from services.gateway.io.connection_policy import ConnectionPolicy
from services.gateway.io.line import line_of
from services.gateway.io.protocol import PromptProtocol, prompt_protocol

ASK = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
LAST = ASK.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
OLD = ASK.replace(b"HTTP/1.1", b"HTTP/1.0")
IN_CHUNKS = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
POLICY = ConnectionPolicy(keep_alive_s=60.0)


class PaperSocket:
    def setsockopt(self, *option: int) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 80)

    getpeername = getsockname


class PaperTransport:
    """Of a connection, what was written; like uvloop's it takes nothing once it is lost."""

    def __init__(self) -> None:
        self.written = b""
        self.writes = 0
        self.closed = self.ended = self.lost = False
        self.reads = True
        self._news = asyncio.Event()

    def get_extra_info(self, name: str) -> Any:
        return PaperSocket() if name == "socket" else None

    def write(self, content: bytes) -> None:
        if self.lost or self.ended:
            raise RuntimeError("the handle is closed")
        self.written += content
        self.writes += 1
        self._news.set()

    async def shows(self, mark: bytes, times: int = 1) -> None:
        while self.written.count(mark) < times:
            self._news.clear()
            await self._news.wait()

    @property
    def over(self) -> bool:
        """Nothing more is said, whether or not the client is still read."""
        return self.closed or self.ended

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Connection:
    def __init__(self, app: Any, policy: ConnectionPolicy = POLICY) -> None:
        self.app = app
        self.transport = PaperTransport()
        config = Config(app, lifespan="off", ws="none", log_config=None, proxy_headers=False)
        self.protocol = cast(PromptProtocol, prompt_protocol(policy)(config, ServerState(), {}))
        self.protocol.connection_made(cast(asyncio.Transport, self.transport))

    def send(self, content: bytes) -> None:
        self.protocol.data_received(content)

    def lose(self, error: Exception | None = None) -> None:
        self.transport.closed = self.transport.lost = True
        self.protocol.connection_lost(error)


class Mark:
    """Lives as long as the request that it was put into."""


class Answers:
    """An application that answers when it is told to, and ends when its client has left."""

    def __init__(self) -> None:
        self.may_end: asyncio.Queue[None] = asyncio.Queue()
        self.marks: list[weakref.ref[Mark]] = []
        self.failures: list[Exception] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["mark"] = mark = Mark()
        self.marks.append(weakref.ref(mark))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            line_of(scope).watch(lambda: self.may_end.put_nowait(None))
            await self.may_end.get()
            line_of(scope).unwatch()
            await send({"type": "http.response.body", "body": b"end"})
        except Exception as error:
            self.failures.append(error)
            raise


def saying(*messages: Message, error: Exception | None = None) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def answered(app: Any, asked: bytes = ASK, policy: ConnectionPolicy = POLICY) -> Connection:
    """The connection, once the application has nothing more to say."""
    made = Connection(app, policy)
    made.send(asked)
    await asyncio.gather(*made.protocol.server_state.tasks)
    return made
