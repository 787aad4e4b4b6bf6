"""Calls of functions, as official clients ask for them and find them: of a base that writes them as Hermes does.

`make test` asks OpenAI's Python SDK; `make contract-clients` asks all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from shared.contracts.catalog import BASE_MODEL
from tests.clients.roster import Client, each_client, hang_up, speaks
from tests.clients.said import Said
from tests.support.gateway_world import ALIAS_NAME, BASE_HASH, KEY, World, gateway_world
from tests.support.scripted_replica import Script, says

pytestmark = pytest.mark.deadline(60)
QUESTION = {"role": "user", "content": "How is the weather in Paris and in Rome?"}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": WEATHER}]
TWO_CALLS = (
    "I look", " it up.", "\n<tool", '_call>\n{"name": "weather", "argu', 'ments": {"city": "Pa', 'ris"}}\n</tool_',
    'call>\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}', "\n</tool_call>",
)  # fmt: skip

pytest_generate_tests = each_client
_hang_up = pytest.fixture(scope="session", autouse=True)(hang_up)


@asynccontextmanager
async def hermes(script: Script) -> AsyncIterator[World]:
    async with gateway_world(script) as world:
        bases = world.broker.connect("registry").state(BASE_MODEL)
        known = await bases.get(BASE_HASH)
        assert known is not None
        assert known.value is not None
        await bases.put(msgspec.structs.replace(known.value, tool_parser="hermes"), BASE_HASH)
        await world.clock.advance(0.0)
        yield world


async def ask(world: World, client: Client, verb: str, **params: Any) -> Said:
    asked = {"model": ALIAS_NAME, "messages": [QUESTION], "tools": TOOLS, **params}
    return await asyncio.to_thread(client.ask, verb, world.url, KEY, **asked)


def arguments(value: Any) -> Any:
    """Some clients hand out JSON text, others what it says."""
    return json.loads(value) if isinstance(value, str) else value


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
async def test_tools_are_offered_and_calls_found(client: Client, verb: str) -> None:
    async with hermes(says(*TWO_CALLS)) as world:
        said = await ask(world, client, verb)
        assert said.answer
        calls = [(name, arguments(given)) for name, given in said.calls]
        assert calls == [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]
        assert (said.texts, said.finishes) == (["I look it up."], ["tool_calls"])
        [offered] = json.loads((await world.replicas[0].asked.get()).tools)
        assert (offered["type"], offered["function"]["name"]) == ("function", "weather")
        assert offered["function"]["parameters"]["required"] == ["city"]


@speaks("chat_helper")
async def test_calls_found_by_the_stream_helper(client: Client) -> None:
    async with hermes(says(*TWO_CALLS)) as world:
        said = await ask(world, client, "chat_helper")
        assert [(name, arguments(given)["city"]) for name, given in said.calls] == [
            ("weather", "Paris"), ("weather", "Rome"),
        ]  # fmt: skip


@speaks("chat")
async def test_results_of_tools_are_told(client: Client) -> None:
    calls = [{"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}]
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call-1", "content": "It rains."},
    ]
    async with hermes(says("It", " rains in Paris.")) as world:
        said = await ask(world, client, "chat", messages=messages)
        assert (said.text, said.calls) == ("It rains in Paris.", [])
        _, called, result = (await world.replicas[0].asked.get()).messages
        assert [each["function"]["name"] for each in json.loads(called.tool_calls)] == ["weather"]
        assert (result.role, result.content, result.tool_call_id) == ("tool", "It rains.", "call-1")


@speaks("chat")
async def test_tools_are_refused_where_nobody_can_read_calls(client: Client) -> None:
    async with gateway_world(says("never")) as world:
        error = (await ask(world, client, "chat")).error
        assert "BadRequestError" in error["classes"]
        if client.is_openai:
            assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")
