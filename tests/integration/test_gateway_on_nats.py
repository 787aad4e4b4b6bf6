"""The gateway as a process of its own, started as the supervisor starts it, on a real NATS."""

from __future__ import annotations

import asyncio
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
from tests.support.gateway_world import ALIAS_NAME, KEY, POOL, in_owner_order, write_directory, write_membership
from tests.support.nats_server import NatsServer, nats_server
from tests.support.scripted_replica import ScriptedReplica, says

ROOT = Path(__file__).parents[2]
Within = Callable[[float], AbstractAsyncContextManager[None]]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def _gateway(server: NatsServer) -> AsyncIterator[str]:
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
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


async def test_a_request_over_nats(tmp_path: Path, within: Within) -> None:
    async with within(60), nats_server(tmp_path) as server:
        registry, placement = await connect(server.options("registry")), await connect(server.options("placement"))
        worker = await connect(server.options("replica_worker"))
        await write_directory(registry)
        names = in_owner_order(["replica-0", "replica-1"])
        await write_membership(placement, names)
        second = ScriptedReplica(worker, names[1], POOL, says("Good", " day"))
        gone = ScriptedReplica(worker, names[0], POOL)
        async with _gateway(server) as url, httpx.AsyncClient(base_url=url) as probe:
            assert (await probe.get("/readyz")).status_code == 200
            await second.start()
            await gone.report()
            client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=2)  # reports may still be on their way
            stream = await client.chat.completions.create(
                model=ALIAS_NAME, messages=[{"role": "user", "content": "hello"}], stream=True
            )
            texts = [chunk.choices[0].delta.content async for chunk in stream]
            assert texts == ["Good", " day", ""]
            exposition = (await probe.get("/metrics")).text
            assert 'lorafleet_gateway_failovers_total{cause="no_responders"} 1.0' in exposition
            await client.close()
        for bus in (registry, placement, worker):
            await bus.close()
