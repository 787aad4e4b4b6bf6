"""What is sent to no use: the rest of a refused request, what comes ahead of its time, what comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from services.gateway.io.line import line_of
from services.gateway.io.protocol import prompt_protocol
from tests.unit.gateway.paper import ASK, IN_CHUNKS, LAST, POLICY, Answers, Connection, answered, part, saying, start

pytestmark = pytest.mark.deadline(30)

LARGE_BYTES = 8 << 20
LARGE = ASK.replace(b"length: 0", b"length: %d" % LARGE_BYTES)
NO = saying(start((b"content-length", b"2"), status=401), part(b"no"))
NO_AND_BYE = saying(start((b"content-length", b"2"), (b"connection", b"close"), status=401), part(b"no"))
STRICT = msgspec.structs.replace(POLICY, most_dropped_bytes=1_000)
HASTY = msgspec.structs.replace(POLICY, dropping_s=0.02)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A real connection to it."""
    config, state = Config(app, lifespan="off", ws="none", log_config=None), ServerState()
    spoken: Any = prompt_protocol(POLICY)
    server = await asyncio.get_running_loop().create_server(lambda: spoken(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        async with asyncio.timeout(5):
            while state.connections or state.tasks:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)


@pytest.mark.parametrize("app", [NO, NO_AND_BYE])
async def test_the_rest_of_a_refused_request_is_read_up_to_so_many_bytes(app: Any) -> None:
    made = await answered(app, LARGE, STRICT)
    made.send(b"x" * 1_000)
    assert not made.transport.closed
    made.send(b"x")
    assert made.transport.closed


@pytest.mark.parametrize("app", [NO, NO_AND_BYE])
async def test_the_rest_of_a_refused_request_is_read_for_so_long(app: Any) -> None:
    made = await answered(app, LARGE, HASTY)
    while not made.transport.closed:
        made.send(b"x")
        await asyncio.sleep(0)


@pytest.mark.parametrize("app", [NO, NO_AND_BYE])
async def test_c81_of_20_mb_that_are_refused_all_is_read(app: Any) -> None:
    """Closed before, the connection would be reset: clients that send all before they read would lose their answer."""
    made = await answered(app, ASK.replace(b"length: 0", b"length: 20000000"))
    for _ in range(20):
        made.send(bytes(1_000_000))
    assert not made.transport.closed


async def test_a_connection_is_kept_if_the_rest_of_what_was_refused_comes_and_each_time_it_may_be_as_much() -> None:
    made = await answered(NO, b"", STRICT)
    for before in range(3):
        made.send(ASK.replace(b"length: 0", b"length: 900"))
        await asyncio.gather(*made.protocol.server_state.tasks)
        made.send(b"x" * 400)
        made.send(b"x" * 500)
        assert made.transport.written.count(b"no") == before + 1
    assert not made.transport.over


@pytest.mark.parametrize("sent", [b"\0", b"POST / HTTP/1.1\r\na: " + b"x" * 70_000])
async def test_whoever_is_turned_out_may_send_on_for_a_little(sent: bytes) -> None:
    made = Connection(NO, msgspec.structs.replace(STRICT, dropping_s=HASTY.dropping_s))
    made.send(sent)
    assert (made.transport.ended, made.transport.closed) == (True, False)
    made.send(b"x" * 500)
    assert not made.transport.closed
    while not made.transport.closed:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


@pytest.mark.parametrize("app", [NO, NO_AND_BYE])
async def test_a_client_that_sends_everything_before_it_reads_finds_its_answer(app: Any) -> None:
    async with served(app) as (reader, writer):
        writer.write(LARGE)
        for _ in range(LARGE_BYTES >> 16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ")
        assert await reader.readexactly(2) == b"no"
        if app is NO_AND_BYE:
            assert await reader.read() == b""


async def test_whoever_was_not_asked_for_a_body_begins_anew() -> None:
    """It may send it, or its next request in its place."""
    made = await answered(NO, LARGE.replace(b"\r\n", b"\r\nexpect: 100-continue\r\n", 1))
    assert b"\r\nconnection: close\r\n" in made.transport.written
    assert b"100 Continue" not in made.transport.written
    assert made.transport.ended


async def test_nobody_is_asked_for_a_body_that_is_broken_already(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await NO(scope, receive, send)

    made = await answered(app, IN_CHUNKS.replace(b"\r\n", b"\r\nexpect: 100-continue\r\n", 1) + b"no size\r\n")
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")
    assert made.transport.written.count(b"HTTP/1.1 ") == 1
    assert caplog.records == []


async def test_a_connection_of_which_all_is_read_ends_at_once() -> None:
    made = await answered(NO, LAST)
    assert (made.transport.ended, made.transport.closed) == (False, True)


@pytest.mark.parametrize("ahead", [
    ASK, 100 * ASK, IN_CHUNKS + b"30000\r\n" + b"x" * 0x30000, LARGE + b"x" * 300_000, b"POST / HT",
])  # fmt: skip
async def test_a_client_that_leaves_is_noticed_whatever_it_sent_ahead(ahead: bytes) -> None:
    left = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        line_of(scope).watch(left.set)
        await left.wait()

    async with served(app) as (reader, writer):
        writer.write(ASK)
        await reader.readuntil(b"200 OK")
        for begin in range(0, len(ahead), 10_000):
            writer.write(ahead[begin : begin + 10_000])
            await writer.drain()
        writer.close()
        await left.wait()


async def test_so_much_may_be_sent_ahead_and_the_connection_ends_before_what_is_not_whole() -> None:
    made = Connection(Answers())
    made.send(ASK + ASK)
    await made.transport.shows(b"200 OK")
    made.send(LARGE)
    for _ in range(300_000 >> 10):
        made.send(b"x" * 1_024)
    for _ in range(3):
        made.app.may_end.put_nowait(None)
    while running := made.protocol.server_state.tasks:
        await asyncio.wait(running)
    assert made.transport.written.count(b"end\r\n0\r\n\r\n") == 2
    assert made.transport.written.count(b"\r\nconnection: close\r\n") == 1
    assert made.transport.over


async def test_so_much_is_read_behind_the_last_request_while_it_is_answered() -> None:
    made = Connection(Answers(), STRICT)
    made.send(LAST)
    await made.transport.shows(b"200 OK")
    made.send(b"x" * 1_000)
    assert not made.transport.over
    made.send(b"x")
    assert made.transport.closed


async def test_a_body_that_nobody_takes_is_not_read_on_and_one_that_waits_for_its_turn_is() -> None:
    may_read = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_read.wait()
        await receive()
        await NO(scope, receive, send)

    made = Connection(app)
    made.send(LARGE)
    await asyncio.sleep(0)
    made.send(b"x" * 70_000)
    assert not made.transport.reads
    may_read.set()
    await made.transport.shows(b"no")
    assert made.transport.reads
