"""What a gateway says when there is too much to do, and how it holds to the time that a client gives."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from shared.messages.generation import GenerateRequest
from tests.support.gateway_world import SETTINGS, body, gateway_world
from tests.support.scripted_replica import Script, ScriptedReplica, says

PATH = "/v1/chat/completions"

pytestmark = pytest.mark.deadline(30)


def busy_for(wait_s: float) -> Script:
    async def script(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.refuse(request, "overloaded", elsewhere=True, after_s=wait_s)

    return script


def code_of(response: httpx.Response) -> str:
    code = response.json()["error"]["code"]
    assert isinstance(code, str)
    return code


async def test_when_all_are_busy_the_client_is_told_when_the_first_of_them_is_free() -> None:
    scripts = [busy_for(wait_s) for wait_s in (7.0, 3.2, 5.0, 1.0)]
    async with gateway_world(*scripts) as world, world.client() as client:
        response = await client.post(PATH, json=body())
        assert (response.status_code, code_of(response)) == (503, "overloaded")
        assert response.headers["retry-after"] == "4"
        asked = [replica.asked.qsize() for replica in world.replicas]
        assert asked == [1, 1, 1, 0], "each once, and not the whole fleet"


@pytest.mark.parametrize(("shed", "objective_s"), [(True, 0.4), (False, 0.0)])
async def test_replicas_are_told_within_what_a_first_token_is_wanted(shed: bool, objective_s: float) -> None:
    settings = msgspec.structs.replace(SETTINGS, objective_ttft_s=0.4, shed_late=shed)
    async with gateway_world(says("a"), settings=settings) as world, world.client() as client:
        assert (await client.post(PATH, json=body(n=3))).status_code == 200
        asked = [(await world.replicas[0].asked.get()).objective_s for _ in range(3)]
        assert asked == [objective_s, 0.0, 0.0], "the other answers wait: there may be more of them than rows"


@pytest.mark.parametrize(("waited_s", "left_s"), [(0.4, 0.6), (1.9, 0.001)])
async def test_what_was_waited_at_one_replica_is_gone_from_the_objective_at_the_next(
    waited_s: float, left_s: float
) -> None:
    async def waits(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await world.clock.advance(waited_s)
        await replica.refuse(request, "overloaded", elsewhere=True, after_s=1.0)

    async with gateway_world(waits, busy_for(1.0)) as world, world.client() as client:
        assert (await client.post(PATH, json=body())).status_code == 503
        first, second = [await replica.asked.get() for replica in world.replicas]
        assert (first.objective_s, second.objective_s) == (1.0, pytest.approx(left_s))


async def test_a_stream_that_goes_on_elsewhere_is_not_turned_away_for_want_of_time() -> None:
    async def dies(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.accept(request)
        await replica.say(request, "Good")
        await replica.finish(request, reason="error")

    async with gateway_world(dies, says(" day")) as world, world.client() as client:
        await client.post(PATH, json=body(stream=True), headers={"x-request-timeout-ms": "700"})
        first, second = [await replica.asked.get() for replica in world.replicas]
        assert (first.objective_s, first.deadline_s) == (1.0, 0.7)
        assert (second.objective_s, second.deadline_s) == (0.0, 60.0)


@pytest.mark.parametrize("given", ["0", "soon", "-1"])
async def test_a_timeout_that_is_none_is_a_400(given: str) -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        response = await client.post(PATH, json=body(), headers={"x-request-timeout-ms": given})
        assert (response.status_code, code_of(response)) == (400, "invalid_header")
        assert response.json()["error"]["param"] == "x-request-timeout-ms"
        assert world.replicas[0].asked.empty()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_whose_time_is_over_gets_a_504_and_its_generation_stops(stream: bool) -> None:
    async with gateway_world(None) as world, world.client() as client:
        headers = {"x-request-timeout-ms": "250"}
        asking = asyncio.create_task(client.post(PATH, json=body(stream=stream), headers=headers))
        request = await world.replicas[0].asked.get()
        assert request.deadline_s == 0.25
        await world.replicas[0].queue(request)
        await world.clock.advance(0.5)
        response = await asking
        assert (response.status_code, code_of(response)) == (504, "deadline_exceeded")
        assert response.headers["retry-after"] == "1"
        assert (await world.replicas[0].cancelled.get()).request_id == request.request_id


@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_that_was_accepted_and_has_no_token_in_time_is_a_504(n: int) -> None:
    async with gateway_world(None) as world, world.client() as client:
        headers, [replica] = {"x-request-timeout-ms": "250"}, world.replicas
        asking = asyncio.create_task(client.post(PATH, json=body(stream=True, n=n), headers=headers))
        for request in [await replica.asked.get() for _ in range(n)]:
            await replica.queue(request)
            await replica.accept(request)
        await world.clock.advance(0.5)
        response = await asking
        assert (response.status_code, code_of(response)) == (504, "deadline_exceeded")
        assert "has not begun" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_has_begun_in_time_goes_on_if_it_is_streamed(stream: bool) -> None:
    async with gateway_world(None) as world, world.client() as client:
        headers = {"x-request-timeout-ms": "250"}
        asking = asyncio.create_task(client.post(PATH, json=body(stream=stream), headers=headers))
        replica = world.replicas[0]
        request = await replica.asked.get()
        await replica.queue(request)
        await replica.accept(request)
        await replica.say(request, "Good")
        await world.clock.advance(0.5)
        if stream:
            await replica.finish(request)
        response = await asking
        assert response.status_code == (200 if stream else 504)
        assert b"[DONE]" in response.content or "not whole" in response.json()["error"]["message"]


async def test_a_gateway_takes_so_many_answers_at_once_and_no_more() -> None:
    settings = msgspec.structs.replace(SETTINGS, most_streams=2)
    async with gateway_world(None, settings=settings) as world, world.client() as client:
        asking = [asyncio.create_task(client.post(PATH, json=body())) for _ in range(2)]
        requests = [await world.replicas[0].asked.get() for _ in asking]
        third = await client.post(PATH, json=body())
        assert (third.status_code, code_of(third), third.headers["retry-after"]) == (503, "overloaded", "1")
        for request in requests:
            await world.replicas[0].refuse(request, "overloaded", elsewhere=False)
        assert [response.status_code for response in await asyncio.gather(*asking)] == [503, 503]


async def test_those_for_whom_there_is_nobody_yet_count_among_them() -> None:
    settings = msgspec.structs.replace(SETTINGS, most_streams=1)
    async with gateway_world(settings=settings) as world, world.client() as client:
        waits = asyncio.create_task(client.post(PATH, json=body()))
        await world.arrived()
        assert code_of(await client.post(PATH, json=body())) == "overloaded"
        await world.clock.advance(2.1)
        assert code_of(await waits) == "no_replica"
