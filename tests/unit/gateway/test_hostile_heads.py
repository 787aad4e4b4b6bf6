"""What comes as a request and is none, or is one of which two readers would make different things."""

from __future__ import annotations

import logging

import pytest
from starlette.types import Receive, Scope, Send

from services.gateway.io.protocol import PromptProtocol
from tests.unit.gateway.paper import ASK, IN_CHUNKS, Answers, Connection, answered, part, start

pytestmark = pytest.mark.deadline(30)
HOST = b"host: x\r\n"


def asking(*headers: bytes, first: bytes = b"GET / HTTP/1.1") -> bytes:
    return b"".join([line + b"\r\n" for line in (first, *headers, b"")])


class Noting:
    """Says yes to all and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append((scope["path"], scope["query_string"]))
        await send(start((b"content-length", b"0")))
        await send(part(b""))


@pytest.mark.parametrize("sent", [
    asking(b"host: x", b"a: b", b" c"), asking(b" host: x"), asking(b"host: x", b"a : b"), asking(b"host: x", b"a"),
    asking(b"host: x", b"a: b\0c"), asking(b"host: x", b"a: b\nc: d"), asking(b"host: x", b"a: b\rc: d"),
    b"GET / HTTP/1.1\nhost: x\n\n",
    asking(b"host: x", b"content-length: 1", b"content-length: 1"), asking(b"host: x", b"content-length: 1, 1"),
    asking(b"host: x", b"content-length: +1"), asking(b"host: x", b"content-length: 99999999999999999999"),
    asking(b"host: x", b"content-length: 1", b"transfer-encoding: chunked"),
    asking(b"host: x", b"transfer-encoding: chunked", b"content-length: 1"),
    asking(b"host: x", b"transfer-encoding: gzip"), asking(b"host: x", b"transfer-encoding: chunked, gzip"),
    asking(b"host: x", b"transfer-encoding: chunked", b"transfer-encoding: identity"),
    IN_CHUNKS + b"0x1\r\n", IN_CHUNKS + b"1 \r\n", IN_CHUNKS + b"-1\r\n", IN_CHUNKS + b"1\nx",
    IN_CHUNKS + b"1;a\nb\r\n", IN_CHUNKS + b"fffffffffffffffff\r\n",
    asking(b"host: x", first=b"NOBODY / HTTP/1.1"), asking(b"host: x", first=b"GET\t/ HTTP/1.1"),
    asking(b"host: x", first=b"GET / HTTP/1.2"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
])  # fmt: skip
async def test_what_may_be_read_in_two_ways_is_refused_and_ends_the_connection(sent: bytes) -> None:
    made = await answered(Noting(), sent)
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")
    assert made.transport.written.count(b"HTTP/1.1 ") == 1
    assert made.transport.over


@pytest.mark.parametrize("first", [b"GET /", b"GET / HTTP/0.9", b"GET / HTTP/2.0"])
async def test_other_versions_are_no_requests(first: bytes) -> None:
    made = await answered(Noting(), asking(b"host: x", first=first))
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")
    assert made.transport.over


@pytest.mark.parametrize("hosts", [(), (b"host: x", b"Host: y")])
async def test_a_request_names_one_host(hosts: tuple[bytes, ...]) -> None:
    made = await answered(Noting(), asking(*hosts))
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")
    assert b"names its host" in made.transport.written
    assert made.transport.over


async def test_the_old_http_knows_no_host() -> None:
    made = await answered(Noting(), asking(first=b"GET / HTTP/1.0"))
    assert made.transport.written.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("target", [b"host:443", b"http:///x"])
async def test_a_target_that_names_nothing_is_answered(target: bytes) -> None:
    made = await answered(Noting(), asking(b"host: x", first=b"CONNECT %b HTTP/1.1" % target))
    assert made.transport.written.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("target", "meant"), [
    (b"http://host", ("/", b"")), (b"http://host:80?a=b", ("/", b"a=b")), (b"http://host/c?d", ("/c", b"d")),
    (b"//host/c", ("//host/c", b"")), (b"*", ("*", b"")),
])  # fmt: skip
async def test_a_target_may_name_its_server_as_well(target: bytes, meant: tuple[str, bytes]) -> None:
    noting = Noting()
    await answered(noting, asking(b"host: x", first=b"OPTIONS %b HTTP/1.1" % target))
    assert noting.asked == [meant]


async def test_headers_are_so_many_at_most() -> None:
    many = [b"a:"] * 255
    made = await answered(Noting(), asking(b"host: x", *many))
    assert made.transport.written.startswith(b"HTTP/1.1 200 ")
    made.send(asking(b"host: x", *many, b"a:"))
    assert b"\r\n\r\nHTTP/1.1 431 " in made.transport.written
    assert made.transport.over


@pytest.mark.parametrize("named", ["hear_head", "hear_body", "hear_end"])
async def test_a_failure_of_our_own_is_told_as_such_and_logged_once(
    named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("nobody is to read this")

    monkeypatch.setattr(PromptProtocol, named, fail)
    made = Connection(Answers())
    made.send(IN_CHUNKS + b"1\r\nx\r\n0\r\n\r\n")
    assert made.transport.written.startswith(b"HTTP/1.1 500 ")
    assert b'"code":"internal_error"' in made.transport.written
    assert b"nobody" not in made.transport.written
    assert made.transport.over
    [logged] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], LookupError)
    assert logged.exc_text is None or "fail" in logged.exc_text
    made.lose()


async def test_what_the_client_did_wrong_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    await answered(Noting(), asking(b"host: x", first=b"CONNECT host:443 HTTP/1.1"))
    await answered(Noting(), ASK.replace(HOST, b""))
    assert caplog.records == []
