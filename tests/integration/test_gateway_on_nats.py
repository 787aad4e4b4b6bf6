"""The gateway as a process of its own, started as the supervisor starts it, on a real NATS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
from openai import AsyncOpenAI

from shared.bus.nats import connect
from shared.bus.port import Bus
from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import ALIAS_NAME, KEY, POOL, in_owner_order, write_directory, write_membership
from tests.support.nats_server import NatsServer, nats_server
from tests.support.scripted_replica import Script, ScriptedReplica, says

HELLO = [{"role": "user", "content": "hello"}]
ROOT = Path(__file__).parents[2]
Within = Callable[[float], AbstractAsyncContextManager[None]]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def _gateway(server: NatsServer) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Its address, once its directory is full. It must end in an orderly way."""
    options, port = server.options("gateway"), _free_port()
    given = {
        "NATS_URL": options.url, "NATS_USER": options.user, "NATS_PASSWORD": options.password,
        "GATEWAY_ID": "gateway-0", "HOST": "127.0.0.1", "PORT": str(port),
    }  # fmt: skip
    environment = os.environ | {f"LORAFLEET_GATEWAY_{name}": value for name, value in given.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if b"the directory is full" in line:
                break
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


class Fleet:
    """What a gateway on a real NATS hears from: two replicas that own the adapter, in that order."""

    def __init__(self, server: NatsServer, worker: Bus, *scripts: Script | None) -> None:
        self.server = server
        names = in_owner_order(["replica-0", "replica-1"])
        self.replicas = [
            ScriptedReplica(worker, name, POOL, script) for name, script in zip(names, scripts, strict=True)
        ]


@asynccontextmanager
async def _fleet(folder: Path, *scripts: Script | None) -> AsyncIterator[Fleet]:
    async with nats_server(folder) as server:
        buses = [await connect(server.options(user)) for user in ("registry", "placement", "replica_worker")]
        await write_directory(buses[0])
        fleet = Fleet(server, buses[2], *scripts)
        await write_membership(buses[1], [replica.replica_id for replica in fleet.replicas])
        yield fleet
        for bus in buses:
            await bus.close()


def _client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=2)  # reports may still be on their way


async def test_a_request_over_nats_passes_over_an_owner_that_is_gone(tmp_path: Path, within: Within) -> None:
    async with (
        within(60),
        _fleet(tmp_path, None, says("Good", " day")) as fleet,
        _gateway(fleet.server) as (url, _),
        httpx.AsyncClient(base_url=url) as probe,
        _client(url) as client,
    ):
        assert (await probe.get("/readyz")).status_code == 200
        gone, second = fleet.replicas
        await gone.report()
        await second.start()
        stream = await client.chat.completions.create(model=ALIAS_NAME, messages=HELLO, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["Good", " day", ""]
        exposition = (await probe.get("/metrics")).text
        assert 'lorafleet_gateway_failovers_total{cause="no_responders"} 1.0' in exposition


async def test_a_gateway_that_is_told_to_stop_finishes_its_streams(tmp_path: Path, within: Within) -> None:
    async def begins(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.accept(request)
        await replica.say(request, "Good")

    async with within(60), _fleet(tmp_path, begins, None) as fleet, _gateway(fleet.server) as (url, process):
        replica = fleet.replicas[0]
        await replica.start()
        async with _client(url) as client:
            stream = await client.chat.completions.create(model=ALIAS_NAME, messages=HELLO, stream=True)
            assert (await anext(stream)).choices[0].delta.content == "Good"
            process.send_signal(signal.SIGTERM)
            await _refuses_connections(url)
            await replica.report()
            await replica.finish(await replica.asked.get(), " day")
            assert [chunk.choices[0].delta.content async for chunk in stream] == [" day"]
        assert await process.wait() == 0


async def _refuses_connections(url: str) -> None:
    """Returns once the door is closed for everybody new. Whoever stood in it meanwhile got no answer."""
    while True:
        with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
            try:
                async with httpx.AsyncClient() as probe:
                    await probe.get(f"{url}/healthz")
            except httpx.ConnectError:
                return
