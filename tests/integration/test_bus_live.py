"""What goes by: telemetry, replies, questions. The same for the bus in memory and for NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.bus.port import AskFailed, DeadlineExceeded, Ids, NoResponders
from shared.contracts import catalog
from shared.messages.generation import Queued
from shared.messages.operations import AskFleet, AskState, FleetView, HoldResult, LoadAdapter
from tests.support.bus_samples import frame, gateway_report, generate
from tests.support.bus_worlds import DEADLINE_S, Heard, World, world_of

LOAD = LoadAdapter(adapter_id="a1", digest="d1")
LOADED = HoldResult(adapter_id="a1", ok=True, tier="gpu", reason="")
BOGUS_REPORT = replace(catalog.GATEWAY_REPORT, message=AskState)


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(request.param, tmp_path) as made:
        yield made


async def test_messages_of_one_writer_arrive_in_order(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()
    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    for sequence in range(500):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    calls = await heard.reach(500)
    assert [message.sequence for message, _ in calls] == list(range(500))


async def test_handlers_of_one_subscription_run_one_after_another(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()

    async def slow(message: Any, ids: Ids) -> None:
        await heard(("begin", message.sequence))
        await asyncio.sleep(0)
        await heard(("end", message.sequence))

    await worker.subscribe(catalog.GATEWAY_REPORT, slow)
    for sequence in range(3):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    assert await heard.reach(6) == [(step, n) for n in range(3) for step in ("begin", "end")]


async def test_readers_get_the_ids_of_the_subject_and_a_copy_of_the_message(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()
    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    sent = gateway_report(7)
    await gateway.publish(catalog.GATEWAY_REPORT, sent, "g7")
    [(received, ids)] = await heard.reach(1)
    assert ids == ("g7",)
    assert received == sent
    assert received is not sent


async def test_leading_ids_narrow_a_subscription(world: World) -> None:
    worker, gateway, mine, all_frames = (
        await world.connect("replica_worker"),
        await world.connect("gateway"),
        Heard(),
        Heard(),
    )
    await gateway.subscribe(catalog.FRAME, mine, "g1")
    await gateway.subscribe(catalog.FRAME, all_frames)
    for gateway_id, replica_id in (("g2", "r1"), ("g1", "r1"), ("g1", "r2")):
        await worker.publish(catalog.FRAME, frame(), gateway_id, replica_id)
    await all_frames.reach(3)
    assert [ids for _, ids in await mine.reach(2)] == [("g1", "r1"), ("g1", "r2")]


async def test_answers_and_frames_of_one_gateway_are_told_apart(world: World) -> None:
    worker, gateway, answers, frames = (
        await world.connect("replica_worker"),
        await world.connect("gateway"),
        Heard(),
        Heard(),
    )
    await gateway.subscribe(catalog.ANSWER, answers, "g1")
    await gateway.subscribe(catalog.FRAME, frames, "g1")
    queued = Queued(request_id="q1", replica_id="r1", incarnation="i1")
    await worker.publish(catalog.ANSWER, queued, "g1", "q1")
    await worker.publish(catalog.FRAME, frame(), "g1", "r1")
    assert await answers.reach(1) == [(queued, ("g1", "q1"))]
    assert await frames.reach(1) == [(frame(), ("g1", "r1"))]


async def test_what_is_heard_without_a_task_comes_in_order_with_its_ids(world: World) -> None:
    worker, gateway, heard, others = (
        await world.connect("replica_worker"),
        await world.connect("gateway"),
        Heard(),
        Heard(),
    )
    hearing = await gateway.hear(catalog.FRAME, heard.note, "g1")
    await gateway.subscribe(catalog.FRAME, others, "g2")
    for number in range(200):
        worker.send(catalog.FRAME, frame(number), "g1", "r1")
        await worker.publish(catalog.FRAME, frame(number), "g2", "r2")
    assert await heard.reach(200) == [(frame(number), ("g1", "r1")) for number in range(200)]
    assert await others.reach(200) == [(frame(number), ("g2", "r2")) for number in range(200)]
    await hearing.close()
    await worker.publish(catalog.FRAME, frame(200), "g1", "r1")
    await worker.publish(catalog.FRAME, frame(200), "g2", "r2")
    await others.reach(201)
    assert len(heard.calls) == 200


async def test_a_request_to_nobody_is_told_without_a_task_as_well(world: World) -> None:
    gateway, answers, unanswered = await world.connect("gateway"), Heard(), Heard()
    await gateway.hear(catalog.ANSWER, answers.note, "g1", on_unanswered=unanswered.note)
    gateway.send(catalog.GENERATE, generate(), "r1", answer_to=catalog.ANSWER.subject("g1", "q1"))
    assert await unanswered.reach(1) == [("g1", "q1")]
    assert answers.calls == []


async def test_every_process_of_a_service_hears_what_is_for_each(world: World) -> None:
    gateway = await world.connect("gateway")
    heard = [Heard(), Heard()]
    for each in heard:
        await (await world.connect("replica_worker")).subscribe(catalog.GATEWAY_REPORT, each)
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1")
    for each in heard:
        assert len(await each.reach(1)) == 1


async def test_a_pool_shares_the_questions(world: World) -> None:
    registry, served = await world.connect("registry"), Heard()
    for name in ("first", "second"):

        async def answer(message: AskFleet, ids: Ids, name: str = name) -> FleetView:
            await served(name)
            return FleetView(epoch=1, replicas=())

        await (await world.connect("placement")).serve(catalog.FLEET, answer)
    for _ in range(60):
        await registry.ask(catalog.FLEET, AskFleet(), timeout_s=DEADLINE_S)
    assert len(served.calls) == 60
    assert set(served.calls) == {"first", "second"}


async def test_a_request_to_nobody_is_told_to_the_one_who_waits_for_its_answer(world: World) -> None:
    gateway, answers, unanswered = await world.connect("gateway"), Heard(), Heard()
    await gateway.subscribe(catalog.ANSWER, answers, "g1", on_unanswered=unanswered)
    await gateway.publish(catalog.GENERATE, generate(), "r1", answer_to=catalog.ANSWER.subject("g1", "q1"))
    assert await unanswered.reach(1) == [("g1", "q1")]
    assert answers.calls == []


async def test_a_request_to_somebody_reaches_exactly_that_replica(world: World) -> None:
    gateway, heard, unanswered = await world.connect("gateway"), [Heard(), Heard()], Heard()
    await gateway.subscribe(catalog.ANSWER, Heard(), "g1", on_unanswered=unanswered)
    for at, replica_id in enumerate(("r1", "r2")):
        await (await world.connect("replica_worker")).subscribe(catalog.GENERATE, heard[at], replica_id)
    await gateway.publish(catalog.GENERATE, generate("q1"), "r1", answer_to=catalog.ANSWER.subject("g1", "q1"))
    await gateway.publish(catalog.GENERATE, generate("q2"), "r2", answer_to=catalog.ANSWER.subject("g1", "q2"))
    assert [message.request_id for message, _ in await heard[0].reach(1)] == ["q1"]
    assert [message.request_id for message, _ in await heard[1].reach(1)] == ["q2"]
    assert unanswered.calls == []


async def test_asking_nobody_fails_at_once(world: World) -> None:
    registry = await world.connect("registry")
    with pytest.raises(NoResponders, match=r"replica\.load\.r9"):
        await registry.ask(catalog.LOAD, LOAD, "r9", timeout_s=DEADLINE_S)


async def test_an_answer_that_does_not_come_in_time_is_an_exceeded_deadline(world: World) -> None:
    registry, worker, asked = await world.connect("registry"), await world.connect("replica_worker"), Heard()

    async def never(message: LoadAdapter, ids: Ids) -> HoldResult:
        await asked(ids)
        return await asyncio.Future()

    serving = await worker.serve(catalog.LOAD, never, "r1")
    with pytest.raises(DeadlineExceeded):
        await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=0.05)
    assert await asked.reach(1) == [("r1",)]
    await serving.close()


async def test_a_failure_reaches_the_asker_in_its_own_words(world: World) -> None:
    registry, worker = await world.connect("registry"), await world.connect("replica_worker")

    async def fail(message: LoadAdapter, ids: Ids) -> HoldResult:
        raise RuntimeError("the slot für a1\nis taken")

    await worker.serve(catalog.LOAD, fail, "r1")
    with pytest.raises(AskFailed, match=r"^the slot für a1 is taken$"):
        await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=DEADLINE_S)


async def test_questions_are_answered_concurrently(world: World) -> None:
    registry, worker, second_came = (
        await world.connect("registry"),
        await world.connect("replica_worker"),
        asyncio.Event(),
    )

    async def answer(message: LoadAdapter, ids: Ids) -> HoldResult:
        if message.adapter_id == "second":
            second_came.set()
        await second_came.wait()
        return HoldResult(adapter_id=message.adapter_id, ok=True, tier="gpu", reason="")

    await worker.serve(catalog.LOAD, answer, "r1")
    questions = [LoadAdapter(adapter_id=name, digest="d") for name in ("first", "second")]
    asked = [registry.ask(catalog.LOAD, question, "r1", timeout_s=DEADLINE_S) for question in questions]
    assert [answer.adapter_id for answer in await asyncio.gather(*asked)] == ["first", "second"]
