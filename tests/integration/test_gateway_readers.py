"""Clients that leave, and clients that read slowly: nobody else notices."""

from __future__ import annotations

import asyncio
import json
import socket

import msgspec
import pytest

from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import KEY, SETTINGS, World, body, gateway_world
from tests.support.scripted_replica import ScriptedReplica

pytestmark = pytest.mark.deadline(30)


class RawClient:
    """A connection in a test's own hands: it reads when it wants to, and may vanish."""

    def __init__(self, world: World, *, receive_bytes: int | None = None) -> None:
        self._connection = socket.socket()
        self._connection.setblocking(False)
        if receive_bytes is not None:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._address = ("127.0.0.1", world.assembly.server.port)

    async def post(self, **changes: object) -> None:
        content = json.dumps(body(**changes)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._connection, self._address)
        await loop.sock_sendall(self._connection, f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)

    @property
    def has_answer(self) -> bool:
        try:
            return bool(self._connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    async def send(self, content: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, content)

    async def begin_post(self) -> None:
        """A head that promises more than ever comes."""
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._connection, self._address)
        await loop.sock_sendall(self._connection, f"{head}content-length: 1000000\r\n\r\n{{".encode())

    async def read_to_end(self) -> bytes:
        heard = b""
        while more := await asyncio.get_running_loop().sock_recv(self._connection, 65_536):
            heard += more
        return heard

    async def read_until(self, mark: bytes) -> bytes:
        heard = b""
        while mark not in heard:
            more = await asyncio.get_running_loop().sock_recv(self._connection, 65_536)
            assert more, heard[-500:]
            heard += more
        return heard

    def leave(self) -> None:
        self._connection.close()


async def begun(replica: ScriptedReplica) -> GenerateRequest:
    request = await replica.asked.get()
    await replica.queue(request)
    await replica.accept(request)
    return request


@pytest.mark.parametrize("ahead", [b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 2])
@pytest.mark.parametrize("stream", [True, False])
async def test_c76_a_client_that_leaves_stops_its_generation(stream: bool, ahead: bytes) -> None:
    async with gateway_world(None) as world, world.client() as probe:
        replica, client = world.replicas[0], RawClient(world)
        await client.post(stream=stream)
        request = await begun(replica)
        await client.send(ahead)
        await replica.say(request, "one", " two", " three")
        if stream:
            await client.read_until(b" three")
        await world.clock.advance(0.0)  # until the gateway has heard everything that was said
        client.leave()
        cancel = await replica.cancelled.get()
        assert (cancel.request_id, cancel.reason) == (request.request_id, "The client left.")
        text = (await probe.get("/metrics")).text
        assert 'lorafleet_gateway_requests_total{outcome="client_left"} 1.0' in text
        assert "lorafleet_gateway_tokens_total 3.0" in text
        assert "lorafleet_gateway_streams 0.0" in text


async def test_c76_a_client_that_leaves_before_anything_came() -> None:
    async with gateway_world(None) as world:
        client = RawClient(world)
        await client.post()
        request = await world.replicas[0].asked.get()
        client.leave()
        assert (await world.replicas[0].cancelled.get()).request_id == request.request_id


async def test_c83_a_slow_reader_is_cut_off_and_the_others_keep_their_pace() -> None:
    """One that reads nothing gets what the gateway may keep for it, then an error; one beside it gets all."""
    settings = msgspec.structs.replace(SETTINGS, most_waiting_bytes=64 << 10)
    async with gateway_world(None, settings=settings) as world:
        replica, slow, quick = world.replicas[0], RawClient(world, receive_bytes=4_096), RawClient(world)
        await slow.post(stream=True)
        slow_request = await begun(replica)
        await quick.post(stream=True)
        quick_request = await begun(replica)
        while replica.cancelled.empty():
            chunks = (replica.token(slow_request, "x" * 8_192), replica.token(quick_request, "y"))
            await replica.frame(slow_request.gateway_id, *chunks)
            await quick.read_until(b'"content":"y"')
        assert (await replica.cancelled.get()).request_id == slow_request.request_id
        await replica.finish(quick_request)
        await quick.read_until(b"[DONE]")
        heard = await slow.read_until(b'"slow_reader"')
        assert b"[DONE]" not in heard
        slow.leave()
        quick.leave()


async def test_a_body_that_never_becomes_whole_is_refused_and_its_connection_closed() -> None:
    impatient = msgspec.structs.replace(SETTINGS, body_idle_s=0.01)
    async with gateway_world(settings=impatient) as world:
        client = RawClient(world)
        await client.begin_post()
        heard = await client.read_to_end()
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in heard
        client.leave()


async def test_a_body_that_comes_too_slowly_is_refused_though_something_always_comes() -> None:
    impatient = msgspec.structs.replace(SETTINGS, body_s=0.05)
    async with gateway_world(settings=impatient) as world:
        client = RawClient(world)
        await client.begin_post()
        while not client.has_answer:
            await client.send(b" ")
            await asyncio.sleep(0)
        heard = await client.read_to_end()
        assert heard.startswith(b"HTTP/1.1 408 ")
        client.leave()


async def test_a_stream_that_outlasts_the_drain_ends_with_an_error_and_not_just_so() -> None:
    hasty = msgspec.structs.replace(SETTINGS, drain_s=0.05)
    async with gateway_world(None, settings=hasty) as world:
        client = RawClient(world)
        await client.post(stream=True)
        await world.replicas[0].say(await begun(world.replicas[0]), "Good")
        await client.read_until(b"Good")
        await world.assembly.server.stop()
        rest = await client.read_to_end()
        assert b'"code":"shutting_down"' in rest
        assert b"[DONE]" not in rest
        client.leave()
        assert (await world.replicas[0].cancelled.get()).reason == "This gateway is shutting down."
