"""Connections that are too many, too slow, too large or idle: each has its bound, and a clear word before the end."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from services.gateway.io.descriptors import allowed_connections
from services.gateway.settings import Settings
from tests.support.gateway_world import KEY, SETTINGS, World, body, gateway_world
from tests.support.scripted_replica import says

pytestmark = pytest.mark.deadline(30)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.assembly.server.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def post(stream: bool = False, **headers: str) -> bytes:
    content = json.dumps(body(stream=stream)).encode()
    named = {"host": "x", "authorization": f"Bearer {KEY}", "content-length": str(len(content)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + content


def settings(**changes: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, **changes)


async def ask(connection: Connection) -> bytes:
    """One request on it; the whole answer, which says how long it is."""
    reader, writer = connection
    writer.write(post())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


async def unchunked(reader: asyncio.StreamReader) -> bytes:
    """The body, if every byte of it is framed as it should be."""
    body = b""
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return body


async def test_a_connection_serves_on_after_a_stream_whose_tokens_passed_the_server_by() -> None:
    async with gateway_world(says("a", "", " b", "ü")) as world, connected(world) as connection:
        reader, writer = connection
        for _ in range(2):
            writer.write(post(stream=True, expect="100-continue"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert b"transfer-encoding: chunked\r\n" in await reader.readuntil(b"\r\n\r\n")
            *events, done, rest = (await unchunked(reader)).split(b"\n\n")
            choices = [json.loads(event.removeprefix(b"data: "))["choices"][0] for event in events]
            assert "".join(choice["delta"]["content"] for choice in choices) == "a bü"
            assert (done, rest) == (b"data: [DONE]", b"")
        assert (await ask(connection)).startswith(b"HTTP/1.1 200 ")


async def test_a_stream_for_a_client_of_the_old_http_ends_with_its_connection() -> None:
    async with gateway_world(says("a", " b")) as world, connected(world) as (reader, writer):
        writer.write(post(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    *events, done, rest = content.split(b"\n\n")
    assert [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["content"] for event in events] == [
        "a",
        " b",
        "",
    ]
    assert (done, rest) == (b"data: [DONE]", b"")


async def test_one_connection_too_many_is_told_so_and_the_others_are_served() -> None:
    async with gateway_world(says("a"), settings=settings(most_connections=2)) as world:
        async with connected(world) as first, connected(world) as second:
            assert (await ask(first)).startswith(b"HTTP/1.1 200 ")
            assert (await ask(second)).startswith(b"HTTP/1.1 200 ")
            async with connected(world) as third:
                third[1].write(post())
                heard = await third[0].read()
            assert heard.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"too_many_connections"' in heard
            assert b"retry-after: 1\r\n" in heard
            assert (await ask(second)).startswith(b"HTTP/1.1 200 ")
        while world.assembly.server.connections():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        async with connected(world) as another:
            assert (await ask(another)).startswith(b"HTTP/1.1 200 "), "a place is free again"


@pytest.mark.parametrize("sent", [b"P", b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: "])
async def test_a_head_that_never_becomes_whole_is_dropped_after_a_while(sent: bytes) -> None:
    async with gateway_world(settings=settings(head_s=0.05)) as world, connected(world) as (reader, writer):
        writer.write(sent)
        heard = await reader.read()
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in heard


async def test_the_second_request_of_a_connection_has_no_longer_for_its_head_than_the_first() -> None:
    async with gateway_world(says("a"), settings=settings(head_s=0.2)) as world, connected(world) as connection:
        assert (await ask(connection)).startswith(b"HTTP/1.1 200 ")
        connection[1].write(b"POST /v1")
        assert (await connection[0].read()).startswith(b"HTTP/1.1 408 ")


async def test_a_late_head_behind_a_running_answer_does_not_cut_it_off() -> None:
    async with gateway_world(None, settings=settings(head_s=0.02)) as world, connected(world) as (reader, writer):
        writer.write(post(stream=True) + b"POST /v1")
        replica = world.replicas[0]
        request = await replica.asked.get()
        await replica.queue(request)
        await replica.accept(request)
        late = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, late.set)
        await late.wait()
        await replica.say(request, "still")
        await replica.finish(request)
        heard = await reader.read()
        assert b"still" in heard
        assert b"[DONE]" in heard
        assert b"HTTP/1.1 408 " in heard.partition(b"[DONE]")[2]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_head_that_is_too_large_is_refused_whether_or_not_it_ends(whole: bool) -> None:
    async with (
        gateway_world(settings=settings(largest_head_bytes=4_096)) as world,
        connected(world) as (reader, writer),
    ):
        large = post(**{"x-large": "x" * 5_000})
        writer.write(large if whole else large[:4_800])
        heard = await reader.read()
        assert heard.startswith(b"HTTP/1.1 431 ")
        assert b'"code":"headers_too_large"' in heard


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("stray", [b"", b"\r\n"])
async def test_an_idle_connection_is_closed_before_or_after_its_first_request(asked: bool, stray: bytes) -> None:
    async with gateway_world(says("a"), settings=settings(keep_alive_s=0.1)) as world, connected(world) as connection:
        if asked:
            assert (await ask(connection)).startswith(b"HTTP/1.1 200 ")
        connection[1].write(stray)
        assert await connection[0].read() == b""


async def test_a_connection_is_idle_that_owes_the_rest_of_a_body_which_was_refused() -> None:
    async with gateway_world(settings=settings(keep_alive_s=0.1)) as world, connected(world) as (reader, writer):
        writer.write(post(authorization="Bearer sk-unknown")[:-5])
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 401 ")
        writer.write(b"x")
        await reader.read()


async def test_a_body_that_is_too_large_to_be_read_ends_its_connection() -> None:
    async with gateway_world() as world, connected(world) as (reader, writer):
        writer.write(re.sub(rb"content-length: \d+", b"content-length: 9000000", post()))
        heard = await reader.read()
        assert heard.startswith(b"HTTP/1.1 413 ")
        assert b"\r\nconnection: close\r\n" in heard


async def test_a_body_that_is_no_http_is_told_so_in_the_envelope() -> None:
    async with gateway_world() as world, connected(world) as (reader, writer):
        head, _, _ = post(**{"transfer-encoding": "chunked"}).partition(b"\r\n\r\n")
        writer.write(re.sub(rb"content-length: \d+\r\n", b"", head) + b"\r\n\r\nno size\r\n")
        heard = await reader.read()
        assert heard.startswith(b"HTTP/1.1 400 ")
        assert heard.count(b'"code":"invalid_http"') == 1


@pytest.mark.parametrize("cut", [1, 60, -30, -1])
@pytest.mark.parametrize("sized", [True, False])
async def test_who_would_rather_speak_another_protocol_is_understood_in_this_one(sized: bool, cut: int) -> None:
    """Java's clients ask for HTTP/2 with each first request."""
    asked = post(connection="Upgrade, HTTP2-Settings", upgrade="h2c")
    if not sized:
        head, _, content = asked.partition(b"\r\n\r\n")
        head = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", head)
        asked = b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(content), content)
    async with gateway_world(says("a")) as world, connected(world) as connection:
        reader, writer = connection
        for _ in range(2):
            writer.write(asked[:cut])
            await asyncio.sleep(0)
            writer.write(asked[cut:])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        await reader.readuntil(b"alive")
        await reader.readexactly(1)
        assert (await ask(connection)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("soft", "hard", "most", "left"),
    [(1_024, 20_000, 16_000, 16_000), (1_024, 4_096, 16_000, 3_840), (20_000, 20_000, 16_000, 16_000), (64, 64, 5, 1)],
)
def test_a_gateway_takes_no_more_connections_than_it_may_have_files_open(
    soft: int, hard: int, most: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    assert allowed_connections(most) == left
    assert limits[-1] == (max(soft, min(hard, most + 256)), hard)
