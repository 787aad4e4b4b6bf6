from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from tests.conftest import Within


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Readiness:
    reason: str | None = None

    def __call__(self) -> str | None:
        return self.reason


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
async def address(readiness: Readiness) -> AsyncIterator[tuple[str, int]]:
    metrics, port = Metrics("placement"), free_port()
    metrics.gauge("replicas", "Replicas.").set(2)
    server = ProbeServer(port, metrics, readiness)
    await server.start()
    yield "127.0.0.1", port
    await server.stop()


@pytest.fixture
async def client(address: tuple[str, int]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=5.0) as client:
        yield client


async def test_it_is_alive_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.text) == (200, "ready\n")


async def test_it_says_why_it_is_not_ready(client: httpx.AsyncClient, readiness: Readiness) -> None:
    readiness.reason = "the view of the fleet is not filled yet"
    ready = await client.get("/readyz?verbose=1")
    assert (ready.status_code, ready.text) == (503, "the view of the fleet is not filled yet\n")
    assert (await client.get("/healthz")).status_code == 200


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "lorafleet_placement_replicas 2.0" in answer.text


async def test_other_paths_and_methods_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).status_code == 404
    assert (await client.post("/healthz")).status_code == 405
    head = await client.head("/healthz")
    assert (head.status_code, head.text) == (200, "")


@pytest.mark.parametrize("noise", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"a" * 200_000], ids=len)
async def test_what_is_no_http_is_dropped_and_the_next_one_served(
    noise: bytes, address: tuple[str, int], client: httpx.AsyncClient, within: Within
) -> None:
    reader, writer = await asyncio.open_connection(*address)
    async with within(5):
        writer.write(noise)
        writer.write_eof()
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            assert len(noise) > 65_536
        writer.close()
    assert (await client.get("/healthz")).status_code == 200


async def test_port_0_listens_nowhere() -> None:
    server = ProbeServer(0, Metrics("placement"), Readiness())
    await server.start()
    await server.stop()


async def test_a_port_that_is_taken_is_said_at_the_start(address: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="address already in use"):
        await ProbeServer(address[1], Metrics("placement"), Readiness()).start()
