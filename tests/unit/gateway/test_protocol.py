"""Connections whose requests come before the last answer is whole, and connections that break."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from services.gateway.io.line import line_of
from services.gateway.io.protocol import ConnectionPolicy, PromptProtocol, prompt_protocol

ASK = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


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
        self.closed = self.lost = False
        self._news = asyncio.Event()

    def get_extra_info(self, name: str) -> Any:
        return PaperSocket() if name == "socket" else None

    def write(self, content: bytes) -> None:
        if self.lost:
            raise RuntimeError("the handle is closed")
        self.written += content
        self._news.set()

    async def shows(self, mark: bytes, times: int = 1) -> None:
        while self.written.count(mark) < times:
            self._news.clear()
            await self._news.wait()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


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
            with line_of(scope).watched(lambda: self.may_end.put_nowait(None)):
                await self.may_end.get()
            await send({"type": "http.response.body", "body": b"end"})
        except Exception as error:
            self.failures.append(error)
            raise


class Connection:
    def __init__(self, app: Answers) -> None:
        self.app = app
        self.transport = PaperTransport()
        config = Config(cast(Any, app), lifespan="off", ws="none", log_config=None, proxy_headers=False)
        spoken = prompt_protocol(ConnectionPolicy(keep_alive_s=60.0))
        self.protocol = cast(PromptProtocol, spoken(config, ServerState(), {}))
        self.protocol.connection_made(cast(asyncio.Transport, self.transport))

    def send(self, content: bytes) -> None:
        self.protocol.data_received(content)

    def lose(self, error: Exception | None = None) -> None:
        self.transport.closed = self.transport.lost = True
        self.protocol.connection_lost(error)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    made = Connection(Answers())
    yield made
    if not made.transport.lost:
        made.lose()


async def test_requests_that_were_sent_ahead_are_answered_in_turn_and_forgotten(connection: Connection) -> None:
    connection.send(ASK)
    for answered in range(5):
        connection.send(ASK)
        connection.app.may_end.put_nowait(None)
        await connection.transport.shows(b"end", answered + 1)
    gc.collect()
    assert [mark() is None for mark in connection.app.marks[:5]] == [True] * 5


async def test_a_client_that_leaves_with_a_request_sent_ahead_is_written_nothing(connection: Connection) -> None:
    connection.send(ASK + ASK)
    await connection.transport.shows(b"200 OK")
    connection.lose()
    [running] = connection.protocol.server_state.tasks
    await running
    assert connection.app.failures == []
    assert b"end" not in connection.transport.written


async def test_what_is_no_request_puts_nothing_into_the_answer_before_it(connection: Connection) -> None:
    connection.send(ASK)
    await connection.transport.shows(b"200 OK")
    begun = connection.transport.written
    connection.send(b"\x00\x01\r\n\r\n")
    assert connection.transport.written == begun
    assert connection.transport.closed


async def test_what_is_no_request_is_refused_as_clients_expect_it(connection: Connection) -> None:
    connection.send(b"\x00\x01\r\n\r\n")
    assert connection.transport.written.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_http"' in connection.transport.written


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
async def test_a_connection_that_is_over_leaves_no_timer(connection: Connection, error: Exception | None) -> None:
    assert connection.protocol.timeout_keep_alive_task is not None
    connection.lose(error)
    assert connection.protocol.timeout_keep_alive_task is None
