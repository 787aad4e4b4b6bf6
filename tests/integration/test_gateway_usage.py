"""Each request that had a target leaves one usage record, however it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import msgspec
import pytest

from services.gateway.usage import SEND_S
from services.registry.core.usage import is_error
from shared.bus.port import BusUnavailable
from shared.contracts.catalog import GENERATE, USAGE_RECORDED
from shared.messages.generation import GenerateRequest
from shared.messages.usage import UsageBatch, UsageRecord
from tests.support.bus_worlds import Heard
from tests.support.gateway_world import ADAPTER, ALIAS_NAME, BASE_NAME, KEY, POOL, SETTINGS, World, body, gateway_world
from tests.support.scripted_replica import PROMPT_TOKENS, ScriptedReplica, says

PATH = "/v1/chat/completions"
IMPATIENT = msgspec.structs.replace(SETTINGS, patience_s=0.0)
pytestmark = pytest.mark.deadline(30)


async def batches(world: World, count: int) -> list[UsageBatch]:
    """The first `count` batches that the bus has got, from the beginning."""
    heard = Heard()
    subscription = await world.broker.connect("registry").consume(USAGE_RECORDED, f"test-{count}", heard)
    await world.clock.advance(SEND_S)
    told = [batch for batch, _ in await heard.reach(count)]
    await subscription.close()
    return told


async def only_record(world: World) -> UsageRecord:
    [batch] = await batches(world, 1)
    [record] = batch.records
    return record


async def post(world: World, key: str = KEY, **changes: object) -> httpx.Response:
    async with world.client(key) as client:
        return await client.post(PATH, json=body(**changes))


async def refuses(replica: ScriptedReplica, request: GenerateRequest) -> None:
    await replica.refuse(request, "context_length_exceeded", elsewhere=False, message="Too long.")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_good_answer_says_who_what_where_and_how_much(stream: bool) -> None:
    async with gateway_world(says("Hello", " you", tier="ram")) as world:
        response = await post(world, stream=stream)
        record = await only_record(world)
        assert record.request_id == response.headers["x-request-id"]
        assert msgspec.structs.replace(record, call_id="", request_id="") == UsageRecord(
            call_id="", request_id="", tenant_id="acme", key_id="k1", alias=ALIAS_NAME, adapter_id=ADAPTER.adapter_id,
            digest=ADAPTER.digest, pool_id=POOL, replica_id=world.replicas[0].replica_id, tier="ram",
            prompt_tokens=PROMPT_TOKENS, completion_tokens=2, cached_tokens=0, ttft_ms=0.0, duration_ms=0.0,
            outcome="stop", attempts=1, stream=stream, at_s=0.0,
        )  # fmt: skip


async def test_the_base_model_has_no_digest() -> None:
    async with gateway_world(says("Hi")) as world:
        await post(world, model=BASE_NAME)
        record = await only_record(world)
        assert (record.adapter_id, record.digest, record.alias, record.tier) == ("base", "", BASE_NAME, "gpu")


async def test_a_refusal_is_recorded_with_its_code_and_no_tokens() -> None:
    async with gateway_world(refuses) as world:
        assert (await post(world)).status_code == 400
        record = await only_record(world)
        assert (record.outcome, record.completion_tokens, record.tier) == ("context_length_exceeded", 0, "")
        assert record.ttft_ms is None


async def test_who_is_turned_away_before_a_target_is_known_leaves_none() -> None:
    async with gateway_world(says("Hi")) as world:
        assert (await post(world, key="sk-wrong")).status_code == 401
        assert (await post(world, model="acme/unknown")).status_code == 404
        assert (await post(world, messages=[])).status_code == 400
        await post(world)
        assert (await only_record(world)).outcome == "stop"


async def test_a_request_that_moved_on_is_one_record_of_two_attempts() -> None:
    async with gateway_world(None, says("Good")) as world:
        await world.replicas[0].vanish()
        await post(world)
        record = await only_record(world)
        assert (record.attempts, record.replica_id) == (2, world.replicas[1].replica_id)


async def test_c76_a_client_that_leaves_after_three_chunks_is_recorded_with_three_tokens() -> None:
    async with gateway_world(None) as world:
        replica = world.replicas[0]
        async with world.openai() as client:
            asking = asyncio.create_task(client.chat.completions.create(**_question(stream=True)))
            request = await _accepted(replica)
            await replica.say(request, "a", "b", "c")
            chunks = await asking
            assert [(await anext(chunks)).choices[0].delta.content for _ in range(3)] == ["a", "b", "c"]
            await chunks.close()
        await replica.cancelled.get()
        await replica.say(request, "nobody", "reads")
        record = await only_record(world)
        assert (record.outcome, record.completion_tokens, record.prompt_tokens) == ("client_left", 3, PROMPT_TOKENS)


async def test_c76_a_client_that_leaves_before_its_whole_answer_is_recorded_with_what_came() -> None:
    async with gateway_world(None) as world:
        replica = world.replicas[0]
        asking = asyncio.create_task(post(world))
        request = await _accepted(replica)
        await replica.say(request, "a", "b", "c")
        await world.clock.advance(0.0)
        asking.cancel()
        await replica.cancelled.get()
        record = await only_record(world)
        assert (record.outcome, record.completion_tokens, record.stream) == ("client_left", 3, False)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_went_on_elsewhere_is_one_record_of_all_its_tokens(stream: bool) -> None:
    async with gateway_world(None, says(" day", tier="disk")) as world:
        replica = world.replicas[0]
        asking = asyncio.create_task(post(world, stream=stream))
        request = await _accepted(replica)
        await replica.say(request, "Good", "", " old")
        replica.restart()
        await replica.report()
        await asking
        record = await only_record(world)
        assert (record.completion_tokens, record.prompt_tokens) == (4, PROMPT_TOKENS)
        assert (record.attempts, record.outcome, record.tier) == (2, "stop", "gpu")
        assert record.replica_id == world.replicas[1].replica_id


async def test_a_known_model_that_a_gateway_out_of_touch_refuses_is_recorded_once_it_is_back() -> None:
    async with gateway_world(says("Hi"), settings=IMPATIENT) as world:
        world.broker.disconnect(world.bus)
        assert (await post(world)).status_code == 503
        await world.clock.advance(3 * SEND_S)
        world.broker.reconnect(world.bus)
        record = await only_record(world)
        assert (record.outcome, record.attempts, record.pool_id) == ("not_ready", 0, POOL)


async def test_a_bus_that_takes_no_question_is_no_error_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_world(says("Hi"), settings=IMPATIENT) as world:
        send = world.bus.send

        def no_questions(channel: Any, message: Any, *ids: str, **options: Any) -> None:
            if channel is GENERATE:
                raise BusUnavailable("planted: away for a moment")
            send(channel, message, *ids, **options)

        monkeypatch.setattr(world.bus, "send", no_questions)
        assert (await post(world)).status_code == 503
        record = await only_record(world)
        assert (record.adapter_id, record.attempts) == (ADAPTER.adapter_id, 1)
        assert not is_error(record.outcome)


async def test_a_gateway_that_ends_leaves_the_records_of_what_it_cuts_off() -> None:
    async with gateway_world(None, settings=msgspec.structs.replace(SETTINGS, drain_s=0.01)) as world:
        replica = world.replicas[0]
        asking = asyncio.create_task(post(world, stream=True))
        await replica.say(await _accepted(replica), "a")
    assert "shutting_down" in (await asking).text
    [batch] = await batches(world, 1)
    assert [(one.outcome, one.completion_tokens) for one in batch.records] == [("shutting_down", 1)]


async def test_what_the_bus_did_not_confirm_comes_again_under_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_world(says("Hi")) as world:
        numbers: list[str | None] = []
        publish = world.bus.publish

        async def unconfirmed(channel: Any, message: Any, *ids: str, **options: Any) -> None:
            await publish(channel, message, *ids, **options)
            if channel is USAGE_RECORDED:
                numbers.append(options["message_id"])
                if len(numbers) == 1:
                    raise BusUnavailable("the confirmation is lost")

        monkeypatch.setattr(world.bus, "publish", unconfirmed)
        await post(world)
        await world.clock.advance(3 * SEND_S)
        assert len(numbers) == 2
        assert len(set(numbers)) == 1
        await only_record(world)


async def test_a_bus_that_is_away_for_too_long_costs_the_oldest_records_and_not_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = msgspec.structs.replace(IMPATIENT, most_usage_records=2)
    async with gateway_world(says("Hi"), settings=settings) as world:
        world.broker.disconnect(world.bus)
        for name in ("first", "second", "third", "fourth"):
            async with world.client() as client:
                await client.post(PATH, json=body(), headers={"x-request-id": name})
        async with world.client() as client:
            metrics = (await client.get("/metrics")).text
        assert "lorafleet_gateway_usage_lost_total 2.0" in metrics
        world.broker.reconnect(world.bus)
        [batch] = await batches(world, 1)
        assert [record.request_id for record in batch.records] == ["third", "fourth"]
    said = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    assert said.count("the bus is away for too long: usage is lost, the oldest first") == 1
    assert said.count("the bus takes usage again") == 1


async def test_a_bus_that_is_there_and_takes_no_usage_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_world(says("Hi")) as world:
        publish = world.bus.publish

        async def no_usage(channel: Any, message: Any, *ids: str, **options: Any) -> None:
            if channel is USAGE_RECORDED:
                raise BusUnavailable("planted: there is no such stream")
            await publish(channel, message, *ids, **options)

        monkeypatch.setattr(world.bus, "publish", no_usage)
        await post(world)
        for _ in range(3):
            await world.clock.advance(SEND_S)
        monkeypatch.undo()
        assert (await only_record(world)).outcome == "stop"
    said = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    assert said == ["the bus does not take usage, which is kept meanwhile"]


def _question(**changes: object) -> dict[str, Any]:
    return {"model": ALIAS_NAME, "messages": [{"role": "user", "content": "hello"}], **changes}


async def _accepted(replica: ScriptedReplica) -> GenerateRequest:
    request = await replica.asked.get()
    await replica.queue(request)
    await replica.accept(request)
    return request
