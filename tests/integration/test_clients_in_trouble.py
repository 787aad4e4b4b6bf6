"""What official clients make of a fleet in trouble, which only replicas that do as they are told show at will.

`make test` asks OpenAI's Python SDK; `make contract-clients` asks all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.messages.generation import GenerateRequest
from tests.clients.roster import Client, each_client, hang_up, speaks
from tests.clients.said import Said
from tests.support.gateway_world import ALIAS_NAME, KEY, World, gateway_world
from tests.support.scripted_replica import ScriptedReplica, says

pytestmark = pytest.mark.deadline(60)
HELLO = [{"role": "user", "content": "hello"}]

pytest_generate_tests = each_client
_hang_up = pytest.fixture(scope="session", autouse=True)(hang_up)


async def ask(world: World, client: Client, verb: str = "chat", *, retries: int = 0, **params: Any) -> Said:
    asked = {"model": ALIAS_NAME, "messages": HELLO, **params}
    return await asyncio.to_thread(client.ask, verb, world.url, KEY, retries=retries, **asked)


@speaks("chat")
async def test_what_heals_is_asked_again_when_it_was_said_to(client: Client) -> None:
    asked = 0

    async def refuses_once(replica: ScriptedReplica, request: GenerateRequest) -> None:
        nonlocal asked
        asked += 1
        await (replica.refuse(request, "overloaded", elsewhere=True) if asked == 1 else says("Good")(replica, request))

    async with gateway_world(refuses_once) as world:
        said = await ask(world, client, retries=2)
        assert (said.text, asked) == ("Good", 2)
        assert said.took_s >= 1.0, "Retry-After was 1"


@speaks("chat")
async def test_what_does_not_heal_is_asked_once(client: Client) -> None:
    asked = 0

    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        nonlocal asked
        asked += 1
        await replica.refuse(request, "adapter_failed", elsewhere=False)

    async with gateway_world(refuses) as world:
        error = (await ask(world, client, retries=2)).error
        assert ("InternalServerError" in error["classes"], asked) == (True, 1)
        if client.is_openai:
            assert (error["status_code"], error["code"], error["type"]) == (500, "adapter_failed", "server_error")


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
async def test_a_full_fleet_is_503(client: Client, verb: str) -> None:
    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.refuse(request, "overloaded", elsewhere=True)

    async with gateway_world(refuses) as world:
        error = (await ask(world, client, verb)).error
        assert "APIError" in error["classes"]
        assert error["status_code"] == 503
        if client.is_openai:
            assert (error["code"], error["type"]) == ("overloaded", "server_error")


@speaks("chat_stream")
async def test_a_stream_that_breaks_raises(client: Client) -> None:
    async def breaks(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.accept(request)
        await replica.say(request, "Good")
        await replica.finish(request, reason="error")

    async with gateway_world(breaks, breaks) as world:
        said = await ask(world, client, "chat_stream")
        assert "APIError" in said.error["classes"]
        assert said.texts == ["GoodGood"]
        if client.is_openai:
            assert said.error["code"] == "replica_lost"
