"""Requests for several answers, for raw texts, for log probabilities and for calls: through a real HTTP server, with
replicas that come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from services.gateway.usage import SEND_S
from shared.contracts.catalog import BASE_MODEL, USAGE_RECORDED
from shared.messages.generation import GenerateRequest, TokenChunk, TokenLogprob, TopToken
from shared.messages.usage import UsageRecord
from tests.support.bus_worlds import Heard
from tests.support.gateway_world import ALIAS_NAME, BASE_HASH, World, body, gateway_world
from tests.support.scripted_replica import PROMPT_TOKENS, ScriptedReplica, says

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CALL = ('<tool_call>{"name": "ti', 'me", "arguments": {"at"', ": 5}}", "</tool_call>")
TOOLS = [{"type": "function", "function": {"name": "time"}}]
pytestmark = pytest.mark.deadline(30)


async def post(world: World, path: str = CHAT, **fields: Any) -> httpx.Response:
    async with world.client() as client:
        asked = body(**fields) if path == CHAT else {"model": ALIAS_NAME, **fields}
        return await client.post(path, json=asked)


@asynccontextmanager
async def streaming(
    world: World, replica: ScriptedReplica, n: int
) -> AsyncIterator[tuple[list[GenerateRequest], AsyncIterator[dict[str, Any]]]]:
    """What the replica is asked, and the events of the stream without its end marker."""

    async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))

    async with world.client() as client:
        asked = client.build_request("POST", CHAT, json=body(stream=True, n=n))
        head = asyncio.create_task(client.send(asked, stream=True))
        requests = await begun(replica, n)
        response = await head
        yield requests, events(response)
        await response.aclose()


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    *events, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def begun(replica: ScriptedReplica, count: int) -> list[GenerateRequest]:
    requests = [await replica.asked.get() for _ in range(count)]
    for request in requests:
        await replica.queue(request)
        await replica.accept(request)
    return requests


async def used(world: World) -> list[UsageRecord]:
    heard = Heard()
    subscription = await world.broker.connect("registry").consume(USAGE_RECORDED, "test", heard)
    await world.clock.advance(SEND_S)
    [(batch, _)] = await heard.reach(1)
    await subscription.close()
    return list(batch.records)


async def learn(world: World, **of_base: Any) -> None:
    """The registry tells more of the base."""
    bases = world.broker.connect("registry").state(BASE_MODEL)
    known = await bases.get(BASE_HASH)
    assert known is not None
    assert known.value is not None
    await bases.put(msgspec.structs.replace(known.value, **of_base), BASE_HASH)
    await world.clock.advance(0.0)


async def test_two_answers_are_two_seeds_and_one_body() -> None:
    async with gateway_world(says("Good", " day")) as world:
        answer = (await post(world, n=2, seed=7)).json()
        assert [(each["index"], each["message"]["content"]) for each in answer["choices"]] == [
            (0, "Good day"), (1, "Good day"),
        ]  # fmt: skip
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (PROMPT_TOKENS, 4)
        asked = [await world.replicas[0].asked.get() for _ in range(2)]
        assert [request.sampling.seed for request in asked] == [7, 8]
        records = await used(world)
        assert sorted(record.prompt_tokens for record in records) == [0, PROMPT_TOKENS]
        assert [record.completion_tokens for record in records] == [2, 2]
        assert len({record.request_id for record in records}) == 1


async def test_two_streamed_answers_come_as_they_are_made() -> None:
    async with gateway_world(None) as world:
        [replica] = world.replicas
        answer = asyncio.create_task(post(world, n=2, stream=True, stream_options={"include_usage": True}))
        first, second = await begun(replica, 2)
        await replica.frame(first.gateway_id, replica.token(first, "a"), replica.token(second, "x"))
        await replica.finish(second, reason="length")
        await replica.say(first, "b")
        await replica.finish(first)
        *chunks, usage = events_of(await answer)
        said = [(each["index"], each["delta"], each["finish_reason"]) for chunk in chunks for each in chunk["choices"]]
        assert said == [
            (0, {"role": "assistant", "content": "a"}, None),
            (1, {"role": "assistant", "content": "x"}, None),
            (1, {"content": ""}, "length"),
            (0, {"content": "b"}, None),
            (0, {"content": ""}, "stop"),
        ]
        assert (usage["choices"], usage["usage"]["prompt_tokens"]) == ([], PROMPT_TOKENS)
        assert usage["usage"]["completion_tokens"] == 3
        assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_one_answer_that_fails_fails_the_request_once(stream: bool) -> None:
    async with gateway_world(None) as world:
        [replica] = world.replicas
        answer = asyncio.create_task(post(world, n=3, stream=stream))
        first, second, third = await begun(replica, 3)
        await replica.say(first, "a", "b")
        await replica.say(third, "x")
        await replica.finish(third)
        await replica.finish(second, reason="error")
        assert (await replica.cancelled.get()).request_id == second.request_id
        assert (await replica.cancelled.get()).request_id == first.request_id
        response = await answer
        if stream:
            assert response.text.count('"error"') == 1
            assert "[DONE]" not in response.text
        else:
            assert response.status_code == 503
            assert set(response.json()) == {"error"}
        records = {record.outcome: record for record in await used(world)}
        assert records["stop"].completion_tokens == 1
        dropped = records["other_choice_failed"]
        assert (dropped.completion_tokens, dropped.prompt_tokens) == (2, PROMPT_TOKENS)
        assert len(records) == 3


async def test_a_stream_of_which_one_answer_is_refused_does_not_begin() -> None:
    async with gateway_world(None) as world:
        [replica] = world.replicas
        answer = asyncio.create_task(post(world, n=2, stream=True))
        [taken] = await begun(replica, 1)
        await replica.refuse(await replica.asked.get(), "overloaded", elsewhere=True)
        assert (await replica.cancelled.get()).request_id == taken.request_id
        assert (await answer).status_code == 503


async def test_an_answer_that_breaks_goes_on_elsewhere_beside_the_other() -> None:
    async with gateway_world(None, None) as world:
        owner, other = world.replicas
        async with streaming(world, owner, 2) as ((first, second), events):
            await owner.say(first, "a")
            assert (await anext(events))["choices"][0]["delta"]["content"] == "a"
            await owner.finish(first, reason="error")
            [moved] = await begun(other, 1)
            assert (moved.produced_token_ids, moved.sampling) == ((100,), first.sampling)
            await other.say(moved, "b")
            await other.finish(moved)
            await owner.say(second, "x")
            await owner.finish(second)
            said = {0: "a", 1: ""}
            async for event in events:
                for choice in event["choices"]:
                    said[choice["index"]] += choice["delta"]["content"]
        assert said == {0: "ab", 1: "x"}


@pytest.mark.parametrize("stream", [False, True])
async def test_c76_a_client_that_leaves_ends_all_its_answers(stream: bool) -> None:
    async with gateway_world(None) as world:
        [replica] = world.replicas
        if stream:
            async with streaming(world, replica, 2) as (both, events):
                await replica.say(both[0], "a")
                await anext(events)
        else:
            answer = asyncio.create_task(post(world, n=2))
            both = await begun(replica, 2)
            answer.cancel()
        told = {(await replica.cancelled.get()).request_id for _ in both}
        assert told == {request.request_id for request in both}
        assert {record.outcome for record in await used(world)} == {"client_left"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_a_replica_died_of_half_way_is_one_call(stream: bool) -> None:
    async with gateway_world(None, None) as world:
        await learn(world, tool_parser="hermes")
        owner, other = world.replicas
        answer = asyncio.create_task(post(world, stream=stream, tools=TOOLS))
        [request] = await begun(owner, 1)
        await owner.say(request, *CALL[:2])
        await owner.finish(request, reason="error")
        [moved] = await begun(other, 1)
        assert (moved.produced_token_ids, json.loads(moved.tools)) == ((100, 101), TOOLS)
        await other.say(moved, *CALL[2:])
        await other.finish(moved)
        if stream:
            choices = [choice for event in events_of(await answer) for choice in event["choices"]]
            calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
            assert [call["function"]["arguments"] for call in calls] == ["", '{"at": 5}']
            assert choices[-1]["finish_reason"] == "tool_calls"
        else:
            [choice] = (await answer).json()["choices"]
            assert choice["message"]["tool_calls"][0]["function"] == {"name": "time", "arguments": '{"at": 5}'}


def told(replica: ScriptedReplica, request: GenerateRequest, text: str) -> TokenChunk:
    """A token with its log probability."""
    raw = text.encode()
    logprob = TokenLogprob(5, raw, -0.25, (TopToken(5, raw, -0.25), TopToken(6, b"\xf0", -1.5)))
    return msgspec.structs.replace(replica.token(request, text), logprobs=(logprob,))


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_come_with_their_tokens_over_two_replicas(stream: bool) -> None:
    async with gateway_world(None, None) as world:
        owner, other = world.replicas
        answer = asyncio.create_task(post(world, stream=stream, logprobs=True, top_logprobs=2))
        [request] = await begun(owner, 1)
        assert request.sampling.top_logprobs == 2
        await owner.frame(request.gateway_id, told(owner, request, "a"))
        await owner.finish(request, reason="error")
        [moved] = await begun(other, 1)
        await other.frame(moved.gateway_id, told(other, moved, "é"))
        await other.finish(moved)
        choices = (
            [each for event in events_of(await answer) for each in event["choices"]]
            if stream
            else (await answer).json()["choices"]
        )
        entries = [entry for each in choices for entry in (each["logprobs"] or {"content": []})["content"]]
        assert [(entry["token"], entry["bytes"], entry["logprob"]) for entry in entries] == [
            ("a", [97], -0.25), ("é", [195, 169], -0.25),
        ]  # fmt: skip
        assert [top["token"] for top in entries[0]["top_logprobs"]] == ["a", "bytes:\\xf0"]


async def test_texts_go_on_from_prompts_of_all_four_forms() -> None:
    async with gateway_world(says(" upon")) as world:
        [replica] = world.replicas
        for prompt, asked in (
            ("Once", [("Once", ())]), (["Once", "Twice"], [("Once", ()), ("Twice", ())]),
            ([1, 2], [(None, (1, 2))]), ([[1, 2], [3]], [(None, (1, 2)), (None, (3,))]),
        ):  # fmt: skip
            answer = (await post(world, TEXT, prompt=prompt, max_tokens=3)).json()
            assert (answer["object"], answer["model"]) == ("text_completion", ALIAS_NAME)
            assert [(each["index"], each["text"]) for each in answer["choices"]] == [
                (index, " upon") for index in range(len(asked))
            ]
            assert answer["usage"]["prompt_tokens"] == PROMPT_TOKENS * len(asked)
            got = [await replica.asked.get() for _ in asked]
            assert [(each.prompt, each.prompt_token_ids) for each in got] == asked
            assert {(each.messages, each.sampling.max_tokens) for each in got} == {((), 3)}


async def test_a_text_is_streamed_after_its_prompt() -> None:
    async with gateway_world(says(" upon", " a")) as world:
        response = await post(
            world, TEXT, prompt="Once", echo=True, stream=True, stream_options={"include_usage": True}
        )
        *chunks, usage = events_of(response)
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Once upon", " a", ""]
        assert {chunk["object"] for chunk in [*chunks, usage]} == {"text_completion"}
        assert chunks[0]["id"].startswith("cmpl-")
        assert usage["usage"]["total_tokens"] == PROMPT_TOKENS + 2


async def test_what_a_replica_is_asked() -> None:
    async with gateway_world(says("a")) as world:
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
        shaped = {"presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"5": -100}, "response_format": schema}
        await post(world, **shaped)
        sampling = (await world.replicas[0].asked.get()).sampling
        assert (sampling.presence_penalty, sampling.frequency_penalty) == (1.0, -1.0)
        assert (sampling.logit_bias, sampling.json_schema) == ({5: -100.0}, '{"type":"object"}')


async def test_what_the_engine_cannot_do_is_a_400_in_its_words() -> None:
    async def cannot(replica: ScriptedReplica, request: GenerateRequest) -> None:
        replica.blames = "json_schema"
        await replica.refuse(request, "invalid_request", elsewhere=False, message="This engine follows no schema.")

    async with gateway_world(cannot) as world:
        for n in (1, 2):
            response = await post(world, response_format={"type": "json_object"}, n=n)
            error = response.json()["error"]
            assert (response.status_code, error["param"], error["message"]) == (
                400,
                "response_format",
                "This engine follows no schema.",
            )


async def test_a_token_that_the_base_does_not_have_is_refused_here() -> None:
    async with gateway_world(says("a")) as world:
        await learn(world, vocabulary_size=10)
        assert (await post(world, TEXT, prompt=[9])).status_code == 200
        response = await post(world, TEXT, prompt=[10])
        assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")


async def test_the_door_describes_itself() -> None:
    async with gateway_world() as world, httpx.AsyncClient(base_url=world.url) as client:
        described = (await client.get("/openapi.json")).json()
        assert described["openapi"].startswith("3.1")
        assert {CHAT, TEXT, "/v1/models"} <= set(described["paths"])
