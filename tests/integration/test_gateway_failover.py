"""Replicas that are gone, silent, lost or unlucky: what the client sees is an answer or an honest error."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from shared.bus.memory import MemoryBus
from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import ALIAS_NAME, World, body, gateway_world
from tests.support.scripted_replica import ScriptedReplica, says

PATH = "/v1/chat/completions"
pytestmark = pytest.mark.deadline(30)


async def texts(response: httpx.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"]


async def post(world: World, **changes: object) -> httpx.Response:
    async with world.client() as client:
        return await client.post(PATH, json=body(**changes))


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


async def begun(replica: ScriptedReplica) -> GenerateRequest:
    """The next request of a replica, accepted."""
    request = await replica.asked.get()
    await replica.queue(request)
    await replica.accept(request)
    return request


@asynccontextmanager
async def streaming(world: World) -> AsyncIterator[tuple[httpx.Response, GenerateRequest]]:
    """A streamed response whose head has come, and the request as the first owner knows it."""
    async with world.client() as client:
        head = asyncio.create_task(client.send(client.build_request("POST", PATH, json=body(stream=True)), stream=True))
        request = await begun(world.replicas[0])
        response = await head
        yield response, request
        await response.aclose()


async def test_an_owner_that_nobody_serves_is_passed_over_at_once() -> None:
    async with gateway_world(None, says("Good")) as world:
        await world.replicas[0].vanish()
        assert text_of(await post(world)) == "Good"


async def test_an_owner_that_gives_no_sign_of_life_for_a_second_is_passed_over() -> None:
    async with gateway_world(None, says("Good")) as world:
        silent, other = world.replicas
        answer = asyncio.create_task(post(world))
        request = await silent.asked.get()
        assert other.asked.empty()
        await world.clock.advance(1.2)
        assert text_of(await answer) == "Good"
        assert (await silent.cancelled.get()).request_id == request.request_id


async def test_owners_that_were_both_held_up_are_asked_again_once_they_are_heard_of() -> None:
    async with gateway_world(None, None) as world:
        first, second = world.replicas
        answer = asyncio.create_task(post(world))
        for replica in (first, second):
            await replica.asked.get()
            await world.clock.advance(1.2)
        assert first.asked.empty(), "nobody sends anything more to who does not answer"
        assert not answer.done(), "nobody is left to be asked, but both may yet be heard of"
        await first.report()
        await world.clock.advance(0.2)
        await says("Good")(first, await first.asked.get())
        assert text_of(await answer) == "Good"


async def test_an_owner_that_refuses_sends_it_elsewhere_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.refuse(request, "draining", elsewhere=True, message="It drains.")

    caplog.set_level(logging.INFO)
    async with gateway_world(refuses, says("Good")) as world:
        assert text_of(await post(world)) == "Good"
        assert (await world.replicas[1].asked.get()).attempt == 1
        first = world.replicas[0].replica_id
    [line] = [record for record in caplog.records if record.getMessage() == "a request moves on to another replica"]
    fields = line.__dict__["lorafleet_fields"]
    assert (fields["replica_id"], fields["cause"], fields["reason"]) == (first, "draining", "It drains.")


async def test_c41_refused_by_all_is_503_with_retry_after() -> None:
    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.refuse(request, "overloaded", elsewhere=True, message="The queue is full.")

    async with gateway_world(refuses, refuses) as world:
        response = await post(world)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["error"]["message"] == "The queue is full."


async def test_c41_without_any_replica_the_reason_is_said() -> None:
    async with gateway_world() as world:
        answer = asyncio.create_task(post(world, stream=True))
        await world.arrived()
        await world.clock.advance(2.1)
        response = await answer
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "No replica serves this model's pool at the moment."


async def test_c41_a_replica_that_comes_in_time_serves_who_waits() -> None:
    async with gateway_world(says("Good")) as world:
        replica = world.replicas[0]
        replica.ready = False
        await replica.report()
        answer = asyncio.create_task(post(world))
        await world.arrived()
        replica.ready = True
        await replica.report()
        await world.clock.advance(0.2)
        assert text_of(await answer) == "Good"


async def test_c80_a_prompt_that_is_too_long_is_one_clear_400() -> None:
    async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.refuse(request, "context_length_exceeded", elsewhere=False, message="The prompt is too long.")

    async with gateway_world(refuses, says("never")) as world, world.client() as client:
        text = {"model": ALIAS_NAME, "prompt": "x"}
        for path, asked, param in ((PATH, body(stream=True), "messages"), ("/v1/completions", text, "prompt")):
            response = await client.post(path, json=asked)
            assert response.status_code == 400
            assert response.json()["error"] == {
                "message": "The prompt is too long.",
                "type": "invalid_request_error",
                "param": param,
                "code": "context_length_exceeded",
            }
            assert response.headers["x-should-retry"] == "false"


async def test_a_replica_lost_mid_stream_is_followed_by_one_that_goes_on() -> None:
    async with gateway_world(None, None) as world, streaming(world) as (response, request):
        first, second = world.replicas
        await first.say(request, "Gö", "", "d")
        first.restart()
        await first.report()
        going_on = await begun(second)
        assert (going_on.produced_token_ids, going_on.produced_text_chars) == ((100, 101, 102), 3)
        assert going_on.sampling == request.sampling
        await second.say(going_on, " day")
        await second.finish(going_on)
        assert "".join([text async for text in texts(response)]) == "Göd day"


async def test_a_stream_that_two_replicas_were_lost_on_is_an_error_event_and_no_clean_end() -> None:
    async with gateway_world(None, None, says("never")) as world, streaming(world) as (response, request):
        first, second, third = world.replicas
        await first.say(request, "Good")
        lines = response.aiter_lines()
        assert '"content":"Good"' in await anext(lines)
        for replica in (first, second):
            replica.restart()
            await replica.report()
            if replica is first:
                await second.say(await begun(second), " day")
        *_, last = [line async for line in lines if line]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_lost"
        assert third.asked.empty()


async def test_a_replica_lost_before_the_first_token_is_replaced_even_after_the_head() -> None:
    async with gateway_world(None, says("Good", " day")) as world, streaming(world) as (response, _):
        replica = world.replicas[0]
        replica.restart()
        await replica.report()
        assert "".join([text async for text in texts(response)]) == "Good day"


async def test_a_whole_answer_goes_on_elsewhere_as_a_stream_does() -> None:
    async with gateway_world(None, says(" new", tier="ram")) as world:
        replica = world.replicas[0]
        answer = asyncio.create_task(post(world))
        request = await begun(replica)
        await replica.say(request, "All", " is")
        replica.restart()
        await replica.report()
        assert text_of(await answer) == "All is new"
        assert (await answer).headers["x-adapter-tier"] == "gpu", "the head is of the replica that it began on"
        assert (await answer).json()["usage"]["completion_tokens"] == 3


async def test_a_replica_that_falls_silent_is_lost_after_three_seconds() -> None:
    async with gateway_world(None, says("Good")) as world:
        silent, other = world.replicas
        answer = asyncio.create_task(post(world))
        await begun(silent)
        for _ in range(4):
            await other.report()
            await world.clock.advance(0.9)
        assert text_of(await answer) == "Good"


async def test_a_request_that_two_replicas_died_on_is_not_passed_on() -> None:
    async with gateway_world(None, None, says("never")) as world:
        answer = asyncio.create_task(post(world))
        for replica in world.replicas[:2]:
            await begun(replica)
            replica.restart()
            await replica.report()
        response = await answer
        assert response.status_code == 500
        assert response.headers["x-should-retry"] == "false"
        assert world.replicas[2].asked.empty()


async def test_a_lost_frame_is_replayed_and_nobody_notices() -> None:
    async with gateway_world(None) as world:
        replica = world.replicas[0]
        answer = asyncio.create_task(post(world))
        request = await begun(replica)
        await replica.say(request, "a")
        await replica.frame(request.gateway_id, replica.token(request, "b"), lost=True)
        await replica.say(request, "c")
        await replica.finish(request)
        assert text_of(await answer) == "abc"
        assert [(ask.first, ask.last) for ask in replica.replays] == [(2, 2)]


async def test_frames_that_come_twice_or_in_another_order_are_read_once_and_in_order() -> None:
    async with gateway_world(None) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        for text in ("a", "b", "c", "d"):
            await replica.frame(request.gateway_id, replica.token(request, text), lost=True)
        await replica.send_again(request.gateway_id, 2, 1, 1, 4, 2, 3)
        await replica.finish(request)
        await replica.send_again(request.gateway_id, 4, 5)
        assert "".join([text async for text in texts(response)]) == "abcd"


async def test_a_lost_last_frame_is_noticed_by_the_heartbeat() -> None:
    async with gateway_world(None) as world:
        replica = world.replicas[0]
        answer = asyncio.create_task(post(world))
        request = await begun(replica)
        await replica.say(request, "a")
        await replica.frame(request.gateway_id, replica.end(request), lost=True)
        await replica.heartbeat(request.gateway_id)
        assert text_of(await answer) == "a"


async def test_after_a_frame_that_cannot_be_had_again_the_stream_goes_on_from_what_came_before() -> None:
    async with gateway_world(None) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        replica.forgets_frames = True
        await replica.say(request, "a")
        await replica.frame(request.gateway_id, replica.token(request, "b"), lost=True)
        await replica.say(request, "c")
        assert (await replica.cancelled.get()).request_id == request.request_id
        going_on = await begun(replica)
        assert going_on.produced_token_ids == (100,)
        await replica.say(going_on, "b", "c")
        await replica.finish(going_on)
        assert "".join([text async for text in texts(response)]) == "abc"


async def test_a_replica_that_stops_hands_its_streams_on() -> None:
    async with gateway_world(None, says(" day")) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        await replica.say(request, "Good")
        replica.ready = False
        await replica.report()
        await world.clock.advance(0.0)  # until that is heard
        await replica.finish(request, reason="cancelled")
        assert "".join([text async for text in texts(response)]) == "Good day"


async def test_who_works_on_what_nobody_wants_is_told_again() -> None:
    async with gateway_world(None, says("Good")) as world:
        slow = world.replicas[0]
        answer = asyncio.create_task(post(world))
        request = await slow.asked.get()
        await world.clock.advance(1.2)
        assert text_of(await answer) == "Good"
        await slow.cancelled.get()
        await world.clock.advance(2.5)
        await slow.say(request, "I", "work", "on")
        assert (await slow.cancelled.get()).request_id == request.request_id
        assert slow.cancelled.empty()


async def test_c82_a_bus_that_is_away_for_a_while_costs_no_token() -> None:
    async with gateway_world(None) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        await replica.say(request, "a")
        await world.clock.advance(0.5)
        world.broker.disconnect(world.bus)
        await replica.say(request, "b", "c")  # passes the gateway by
        await world.clock.advance(10.0)  # nobody's silence counts meanwhile
        world.broker.reconnect(world.bus)
        await replica.say(request, "d")
        await replica.finish(request)
        assert "".join([text async for text in texts(response)]) == "abcd"


async def test_c82_a_bus_that_stops_answering_makes_nobody_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_world(None) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        await replica.say(request, "a")
        await world.clock.advance(0.5)
        with monkeypatch.context() as hanging:
            hanging.setattr(MemoryBus, "hearing", False)
            await world.clock.advance(5.0)
        await replica.say(request, "b")
        await replica.finish(request)
        assert "".join([text async for text in texts(response)]) == "ab"


async def test_c82_a_gateway_that_was_held_up_does_not_take_its_own_absence_for_silence() -> None:
    async with gateway_world(None) as world, streaming(world) as (response, request):
        replica = world.replicas[0]
        await replica.say(request, "a")
        await world.clock.advance(0.5)
        world.clock.hold_up(5.0)
        await world.clock.advance(0.5)
        await replica.finish(request)
        assert "".join([text async for text in texts(response)]) == "a"
