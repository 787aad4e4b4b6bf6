"""Connections: what is answered on them and in which order, and what is left of those that break."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from services.gateway.io.connection_policy import ConnectionPolicy
from services.gateway.io.reading import Head, Reading
from tests.unit.gateway.paper import (
    ASK,
    IN_CHUNKS,
    LAST,
    OLD,
    POLICY,
    Answers,
    Connection,
    answered,
    part,
    saying,
    start,
)

pytestmark = pytest.mark.deadline(30)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    made = Connection(Answers())
    yield made
    if not made.transport.lost:
        made.lose()


async def test_requests_that_were_sent_ahead_are_answered_in_turn_and_forgotten(connection: Connection) -> None:
    connection.send(ASK)
    for before in range(5):
        connection.send(ASK)
        connection.app.may_end.put_nowait(None)
        await connection.transport.shows(b"end", before + 1)
    gc.collect()
    assert [mark() is None for mark in connection.app.marks[:5]] == [True] * 5


@pytest.mark.parametrize("cut", [200 * len(ASK), len(ASK), 50])
async def test_so_many_requests_may_be_sent_ahead_and_the_connection_ends_after_them(
    connection: Connection, cut: int
) -> None:
    content, most = 200 * ASK, ConnectionPolicy().most_ahead
    for begin in range(0, len(content), cut):
        connection.send(content[begin : begin + cut])
        connection.app.may_end.put_nowait(None)
    for _ in range(200):
        connection.app.may_end.put_nowait(None)
    while running := connection.protocol.server_state.tasks:
        await asyncio.wait(running)
    assert connection.transport.written.count(b"end\r\n0\r\n\r\n") == 1 + most
    assert connection.transport.written.count(b"\r\nconnection: close\r\n") == 1
    assert connection.transport.over


async def test_what_comes_behind_a_body_is_no_header_of_its_request() -> None:
    heard: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend(name for name, _ in scope["headers"])
        await send(start())
        await send(part(b""))

    await answered(app, IN_CHUNKS + b"0\r\nauthorization: Bearer x\r\n\r\n")
    assert heard == [b"host", b"transfer-encoding"]


async def test_what_comes_behind_a_body_is_bounded_as_a_head_is(connection: Connection) -> None:
    connection.send(IN_CHUNKS + b"1\r\nx\r\n0\r\nx-large: ")
    for _ in range(64):
        connection.send(b"x" * 1_024)
    assert not connection.transport.over
    connection.send(b"x")
    assert connection.transport.written.startswith(b"HTTP/1.1 431 ")
    assert connection.transport.over


async def test_a_request_whose_body_is_no_http_has_one_answer() -> None:
    made = await answered(saying(start(), part(b"whole")), IN_CHUNKS + b"no size\r\n")
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")
    assert made.transport.written.count(b"HTTP/1.1 ") == 1


async def test_to_the_rest_of_a_request_that_was_answered_nothing_is_said() -> None:
    made = await answered(saying(start(), part(b"no")), IN_CHUNKS)
    before = made.transport.written
    made.send(b"no size\r\n")
    assert (made.transport.written, made.transport.over) == (before, True)


async def test_an_answer_that_is_there_at_once_is_one_write() -> None:
    async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"whole"})

    connection = Connection(at_once)
    connection.send(ASK)
    await connection.transport.shows(b"whole")
    assert connection.transport.writes == 1
    assert connection.transport.written.endswith(b"\r\n\r\n5\r\nwhole\r\n0\r\n\r\n")
    connection.lose()


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
    assert connection.transport.over


async def test_what_comes_after_the_last_request_does_not_cut_its_answer_off(connection: Connection) -> None:
    connection.send(LAST)
    connection.send(b"\x00\x01\r\n\r\n")
    connection.app.may_end.put_nowait(None)
    await connection.transport.shows(b"end\r\n0\r\n\r\n")


async def test_a_path_that_is_no_text_makes_no_request(connection: Connection) -> None:
    connection.send(b"POST http://h\xffabs HTTP/1.1\r\nhost: x\r\n\r\n")
    assert connection.transport.written.startswith(b"HTTP/1.1 400 ")


async def test_what_is_no_request_is_refused_as_clients_expect_it(connection: Connection) -> None:
    connection.send(b"\x00\x01\r\n\r\n")
    assert connection.transport.written.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_http"' in connection.transport.written


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
async def test_a_connection_that_is_over_is_held_by_no_timer(error: Exception | None) -> None:
    made = Connection(Answers())
    transport = weakref.ref(made.transport)
    made.lose(error)
    del made
    gc.collect()
    assert transport() is None


async def test_a_connection_is_not_idle_while_a_head_comes() -> None:
    made = Connection(saying(start(), part(b"yes")), msgspec.structs.replace(POLICY, keep_alive_s=0.01))
    made.send(ASK[:20])
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, later.set)
    await later.wait()
    assert not made.transport.over
    made.send(ASK[20:])
    await made.transport.shows(b"yes")
    made.lose()


@pytest.mark.parametrize("asked", [ASK, LAST, OLD])
async def test_a_stream_that_is_open_holds_nothing_of_what_was_asked(connection: Connection, asked: bytes) -> None:
    connection.send(asked)
    await connection.transport.shows(b"200 OK")
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Head | Reading)] == []


async def test_an_application_that_fails_before_it_answers_is_answered_for() -> None:
    made = await answered(saying(error=LookupError("nobody is to read this")))
    assert made.transport.written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b'"code":"internal_error"' in made.transport.written
    assert b"nobody" not in made.transport.written
    assert made.transport.closed


@pytest.mark.parametrize("error", [LookupError("x"), None])
async def test_an_answer_that_does_not_become_whole_has_no_end_but_the_connection_s(error: Exception | None) -> None:
    made = await answered(saying(start(), part(b"half", more=True), error=error))
    assert made.transport.written.endswith(b"\r\n\r\n4\r\nhalf\r\n")
    assert made.transport.closed


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
async def test_a_header_is_one_line(value: bytes) -> None:
    made = await answered(saying(start((b"x-said", value)), part(b"")))
    assert b"x-said" not in made.transport.written
    assert made.transport.written.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize("content", [b"ab", b"abcd"])
async def test_a_body_of_another_size_than_announced_ends_the_connection(content: bytes) -> None:
    made = await answered(saying(start((b"content-length", b"3")), part(content)))
    assert made.transport.closed


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
async def test_what_has_no_body_is_given_none(method: bytes, status: int) -> None:
    made = await answered(saying(start(status=status), part(b"x")), ASK.replace(b"POST", method))
    head, _, body = made.transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (b"chunked" in head, body, made.transport.closed) == (False, b"", False)


@pytest.mark.parametrize(("version", "asked", "closes"), [
    (b"1.1", b"", False), (b"1.1", b"connection: close\r\n", True), (b"1.0", b"connection: keep-alive\r\n", True),
])  # fmt: skip
async def test_a_connection_is_kept_for_whom_that_is_usual(version: bytes, asked: bytes, closes: bool) -> None:
    request = ASK.replace(b"HTTP/1.1\r\n", b"HTTP/%b\r\n%b" % (version, asked))
    made = await answered(saying(start((b"content-length", b"1")), part(b"x")), request)
    assert (b"\r\nconnection: close\r\n" in made.transport.written, made.transport.closed) == (closes, closes)


async def test_who_speaks_the_old_http_gets_a_body_as_it_is() -> None:
    made = await answered(saying(start(), part(b"a", more=True), part(b"b")), OLD)
    head, _, body = made.transport.written.partition(b"\r\n\r\n")
    assert (b"chunked" in head, b"\r\nconnection: close" in head, body) == (False, True, b"ab")
    assert made.transport.closed


async def test_a_server_that_ends_lets_answers_end_and_no_connection_wait(connection: Connection) -> None:
    idle = Connection(Answers())
    idle.protocol.shutdown()
    assert idle.transport.closed
    connection.send(ASK)
    await connection.transport.shows(b"200 OK")
    connection.protocol.shutdown()
    assert not connection.transport.closed
    connection.app.may_end.put_nowait(None)
    await connection.transport.shows(b"end\r\n0\r\n\r\n")
    assert connection.transport.closed
