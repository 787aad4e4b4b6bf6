"""What a gateway does about words that were lost while it had no connection: it asks again, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from services.gateway.__main__ import assemble
from shared.bus.nats import NatsBus, connect
from shared.bus.port import BusUnavailable
from shared.messages.generation import GenerateRequest
from shared.runtime.clock import SystemClock
from tests.support.gateway_world import (
    KEY,
    POOL,
    SETTINGS,
    World,
    body,
    gateway_world,
    write_directory,
    write_membership,
)
from tests.support.nats_server import NatsServer, nats_server
from tests.support.scripted_replica import ScriptedReplica, says

PATH = "/v1/chat/completions"
Within = Callable[[float], AbstractAsyncContextManager[None]]
TICK_S = 0.1

pytestmark = pytest.mark.deadline(30)


async def answer(replica: ScriptedReplica, request: GenerateRequest) -> None:
    await replica.queue(request)
    await replica.accept(request)
    await replica.finish(request, "Good")


@asynccontextmanager
async def waiting(world: World) -> AsyncIterator[tuple[asyncio.Task[httpx.Response], GenerateRequest]]:
    """A request that waits in the queue of the first replica, and the gateway without a connection."""
    async with world.client() as client:
        asking = asyncio.create_task(client.post(PATH, json=body()))
        replica = world.replicas[0]
        request = await replica.asked.get()
        await replica.queue(request)
        await world.clock.advance(TICK_S)
        world.broker.disconnect(world.bus)
        yield asking, request


async def test_a_request_whose_acceptance_was_lost_is_asked_again_under_its_own_id() -> None:
    async with gateway_world(None) as world, waiting(world) as (asking, request):
        [replica] = world.replicas
        await replica.accept(request)
        world.broker.reconnect(world.bus)
        await world.clock.advance(TICK_S)
        again = await replica.asked.get()
        assert (again.request_id, again.attempt) == (request.request_id, request.attempt)
        await replica.accept(again)
        await replica.finish(again, "Good")
        response = await asking
        assert response.json()["choices"][0]["message"]["content"] == "Good"
        assert replica.asked.empty()


async def test_tokens_that_came_before_the_lost_word_are_not_given_up() -> None:
    async with gateway_world(None) as world, waiting(world) as (asking, request):
        [replica] = world.replicas
        await replica.accept(request)
        world.broker.reconnect(world.bus)
        await replica.say(request, "Good")
        await world.clock.advance(TICK_S)
        again = await replica.asked.get()
        await world.clock.advance(0.9)
        await replica.accept(again)
        await replica.finish(again, " day")
        assert (await asking).json()["choices"][0]["message"]["content"] == "Good day"
        assert replica.cancelled.empty()


async def test_a_request_whose_refusal_was_lost_goes_elsewhere_once_it_is_refused_again() -> None:
    async with gateway_world(None, says("Good")) as world, waiting(world) as (asking, request):
        first, second = world.replicas
        await first.refuse(request, "overloaded", elsewhere=True)
        world.broker.reconnect(world.bus)
        await world.clock.advance(TICK_S)
        await first.refuse(await first.asked.get(), "overloaded", elsewhere=True)
        assert (await asking).json()["choices"][0]["message"]["content"] == "Good"
        assert second.asked.qsize() == 1


async def test_a_replica_that_is_not_back_on_the_bus_is_asked_once_it_is() -> None:
    async with gateway_world(None) as world, waiting(world) as (asking, request):
        [replica] = world.replicas
        await replica.vanish()
        world.broker.reconnect(world.bus)
        await world.clock.advance(3 * TICK_S)
        assert replica.asked.empty()
        await replica.start()
        await world.clock.advance(2 * TICK_S)
        again = await replica.asked.get()
        assert again.request_id == request.request_id
        await replica.accept(again)
        await replica.finish(again)
        assert (await asking).status_code == 200


async def test_what_the_bus_did_not_take_the_second_time_is_put_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BusUnavailable("the server does not take what it is sent")

    async with gateway_world(None) as world, waiting(world) as (asking, request):
        [replica] = world.replicas
        world.broker.reconnect(world.bus)
        with monkeypatch.context() as congested:
            congested.setattr(world.bus, "send", full)
            await world.clock.advance(TICK_S)
        await world.clock.advance(TICK_S)
        again = await replica.asked.get()
        assert again.request_id == request.request_id
        await replica.accept(again)
        await replica.finish(again)
        assert (await asking).status_code == 200


async def test_who_was_answered_is_not_asked_again() -> None:
    async with gateway_world(None) as world, world.client() as client:
        asking = asyncio.create_task(client.post(PATH, json=body()))
        [replica] = world.replicas
        request = await replica.asked.get()
        await replica.queue(request)
        await replica.accept(request)
        await world.clock.advance(TICK_S)
        world.broker.disconnect(world.bus)
        world.broker.reconnect(world.bus)
        await world.clock.advance(2 * TICK_S)
        assert replica.asked.empty()
        await replica.finish(request)
        assert (await asking).status_code == 200


@asynccontextmanager
async def on_nats(folder: Path) -> AsyncIterator[tuple[NatsServer, ScriptedReplica, httpx.AsyncClient]]:
    """A gateway in real time, and the one replica that it knows of."""
    async with nats_server(folder) as server:
        services = ("registry", "placement", "replica_worker", "gateway")
        buses: dict[str, NatsBus] = {each: await connect(server.options(each)) for each in services}
        await write_directory(buses["registry"])
        await write_membership(buses["placement"], ["replica-0"])
        replica = ScriptedReplica(buses["replica_worker"], "replica-0", POOL)
        assembly = assemble(msgspec.structs.replace(SETTINGS, fresh_s=60.0), buses["gateway"], SystemClock())
        for part in assembly.parts:
            await part.start()
        await assembly.following.full.wait()
        await replica.start()
        url, key = f"http://127.0.0.1:{assembly.server.port}", {"authorization": f"Bearer {KEY}"}
        try:
            async with httpx.AsyncClient(base_url=url, headers=key, timeout=20.0) as client:
                yield server, replica, client
        finally:
            for part in reversed(assembly.parts):
                await part.stop()
            for bus in buses.values():
                await bus.close()


async def test_a_request_that_waits_while_nats_is_restarted_does_not_wait_for_its_deadline(
    tmp_path: Path, within: Within
) -> None:
    async with within(20), on_nats(tmp_path) as (server, replica, client):
        asking = asyncio.create_task(client.post(PATH, json=body()))
        request = await replica.asked.get()
        await replica.queue(request)
        after = asyncio.create_task(client.post(PATH, json=body()))
        await answer(replica, await replica.asked.get())
        assert (await after).status_code == 200, "and the gateway has heard that the first one waits"
        await server.restart(kill=True)
        again = await replica.asked.get()
        assert again.request_id == request.request_id
        await answer(replica, again)
        assert (await asking).json()["choices"][0]["message"]["content"] == "Good"


async def test_a_gateway_is_not_ready_while_nats_hangs(tmp_path: Path, within: Within) -> None:
    async with within(20), on_nats(tmp_path) as (server, _, client):

        async def becomes(status: int) -> None:
            while (await client.get("/readyz")).status_code != status:
                pass

        await becomes(200)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            async with within(6):
                await becomes(503)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await becomes(200)
