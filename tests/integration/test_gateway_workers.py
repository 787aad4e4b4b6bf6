"""Several gateway processes behind one port, on a real NATS: one is killed, one returns, all are told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import msgspec
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

from infra.local.temporary import free_run
from shared.bus.nats import connect
from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import ALIAS_NAME, KEY, POOL, in_owner_order, write_directory, write_membership
from tests.support.nats_server import NatsServer, nats_server
from tests.support.scripted_replica import ScriptedReplica

ROOT = Path(__file__).parents[2]
Within = Callable[[float], AbstractAsyncContextManager[None]]
WORKERS = 2


class Door:
    """The supervisor, and what is heard of its workers."""

    def __init__(self, process: asyncio.subprocess.Process, first_port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{first_port + WORKERS}"
        self._first_port = first_port
        self.client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)
        self._pids: dict[int, int] = {}
        self._starts = 0
        self._news = asyncio.Event()

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            said = msgspec.json.decode(line)
            if said["event"] == "a worker was started":
                self._pids[said["worker"]] = said["pid"]
                self._starts += 1
                self._news.set()

    async def started(self, times: int) -> None:
        while self._starts < times:
            self._news.clear()
            await self._news.wait()

    def kill(self, worker: int) -> None:
        os.kill(self._pids[worker], signal.SIGKILL)

    async def ask(self, worker: int, path: str) -> httpx.Response:
        """At the worker's own port, as soon as somebody is there."""
        async with httpx.AsyncClient() as probe:
            while True:
                try:
                    return await probe.get(f"http://127.0.0.1:{self._first_port + worker}{path}")
                except httpx.TransportError:
                    continue

    async def ready(self, worker: int) -> None:
        while (await self.ask(worker, "/readyz")).status_code != 200:
            pass

    async def streams(self, worker: int) -> int:
        lines = (await self.ask(worker, "/metrics")).text.splitlines()
        [shown] = [line for line in lines if line.startswith("lorafleet_gateway_streams ")]
        return int(float(shown.split()[1]))


@asynccontextmanager
async def _door(server: NatsServer) -> AsyncIterator[Door]:
    options, first_port = server.options("gateway"), free_run(WORKERS + 1)
    given = {
        "NATS_URL": options.url, "NATS_USER": options.user, "NATS_PASSWORD": options.password,
        "GATEWAY_ID": "gateway-0", "PORT": str(first_port + WORKERS), "METRICS_PORT": str(first_port),
    }  # fmt: skip
    environment = os.environ | {f"LORAFLEET_GATEWAY_{name}": value for name, value in given.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", "--workers", str(WORKERS), cwd=ROOT, env=environment,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    door = Door(process, first_port)
    listening = asyncio.create_task(door.listen())
    try:
        yield door
    finally:
        await door.client.close()
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await listening


@asynccontextmanager
async def _fleet(folder: Path) -> AsyncIterator[tuple[NatsServer, ScriptedReplica]]:
    async with nats_server(folder) as server:
        registry, placement, worker = [
            await connect(server.options(user)) for user in ("registry", "placement", "replica_worker")
        ]
        await write_directory(registry)
        [name] = in_owner_order(["replica-0"])
        await write_membership(placement, [name])
        replica = ScriptedReplica(worker, name, POOL)
        await replica.start()
        yield server, replica
        for bus in (registry, placement, worker):
            await bus.close()


class Stream:
    """One that has said its first word."""

    def __init__(self, request: GenerateRequest, chunks: AsyncStream[ChatCompletionChunk]) -> None:
        self.request = request
        self._chunks = chunks

    async def rest(self) -> list[str | None]:
        return [chunk.choices[0].delta.content async for chunk in self._chunks]


async def _begin(door: Door, replica: ScriptedReplica) -> Stream:
    """On a connection of its own, as those before it are in use: the system chooses its worker."""
    asking = asyncio.create_task(
        door.client.chat.completions.create(
            model=ALIAS_NAME, messages=[{"role": "user", "content": "hello"}], stream=True
        )
    )
    await replica.report()
    request = await replica.asked.get()
    await replica.queue(request)
    await replica.accept(request)
    await replica.say(request, "Good")
    chunks = await asking
    assert (await anext(chunks)).choices[0].delta.content == "Good"
    return Stream(request, chunks)


async def test_workers_share_a_port_and_one_that_dies_takes_no_other_with_it(tmp_path: Path, within: Within) -> None:
    async with within(60), _fleet(tmp_path) as (server, replica), _door(server) as door:
        for worker in range(WORKERS):
            await door.ready(worker)
        streams: list[Stream] = []
        while not all([await door.streams(worker) for worker in range(WORKERS)]):
            streams.append(await _begin(door, replica))
        [mine] = [stream for stream in streams if stream.request.gateway_id.startswith("gateway-0-w1-")][:1]
        door.kill(0)
        await replica.finish(mine.request, " day")
        assert await mine.rest() == [" day"]
        await door.started(WORKERS + 1)
        await door.ready(0)
        assert await door.streams(0) == 0
        last = await _begin(door, replica)
        door.process.send_signal(signal.SIGTERM)
        await replica.report()
        await replica.finish(last.request, " bye")
        assert await last.rest() == [" bye"]
        for stream in streams:
            await replica.finish(stream.request)
        assert await door.process.wait() == 0
