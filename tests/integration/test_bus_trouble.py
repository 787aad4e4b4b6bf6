"""What goes wrong with messages that go by, and how subscriptions end. The same for both buses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.bus.port import AskFailed, BusUnavailable, Ids
from shared.contracts import catalog
from shared.contracts.streams import MAX_MESSAGE_BYTES
from shared.messages.desired import AliasRecord
from shared.messages.operations import AskState, FleetView, HoldResult, LoadAdapter
from shared.messages.reports import FleetMetrics
from tests.support.bus_samples import frame, gateway_report, generate, sample
from tests.support.bus_worlds import DEADLINE_S, Heard, World, world_of

LOAD = LoadAdapter(adapter_id="a1", digest="d1")
LOADED = HoldResult(adapter_id="a1", ok=True, tier="gpu", reason="")
BOGUS_REPORT = replace(catalog.GATEWAY_REPORT, message=AskState)


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(request.param, tmp_path) as made:
        yield made


async def test_an_undecodable_message_is_dropped_and_the_next_one_handled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()
    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    await gateway.publish(BOGUS_REPORT, AskState(), "g1")
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(2), "g1")
    assert [message.sequence for message, _ in await heard.reach(1)] == [2]
    assert "not a message of channel gateway.report" in caplog.text


async def test_an_undecodable_question_fails_for_its_asker(world: World) -> None:
    registry, worker = await world.connect("registry"), await world.connect("replica_worker")

    async def answer(message: LoadAdapter, ids: Ids) -> HoldResult:
        return LOADED

    await worker.serve(catalog.LOAD, answer, "r1")
    with pytest.raises(AskFailed, match=r"not a message of channel replica\.load"):
        await registry.ask(replace(catalog.LOAD, message=AskState), AskState(), "r1", timeout_s=DEADLINE_S)
    with pytest.raises(AskFailed, match=r"not a message of channel replica\.load"):
        await registry.ask(replace(catalog.LOAD, reply=FleetView), LOAD, "r1", timeout_s=DEADLINE_S)
    assert await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=DEADLINE_S) == LOADED


async def test_a_handler_without_a_task_that_fails_costs_one_message(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()

    def picky(message: Any, ids: Ids) -> None:
        if message.sequence == 1:
            raise ValueError("not this one")
        heard.note(message.sequence)

    await worker.hear(catalog.GATEWAY_REPORT, picky)
    gateway.send(BOGUS_REPORT, AskState(), "g1")
    for sequence in range(3):
        gateway.send(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    assert await heard.reach(2) == [0, 2]
    assert "not a message of channel gateway.report" in caplog.text
    assert "not this one" in caplog.text


async def test_what_is_heard_without_a_task_is_heard_again_after_an_outage(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()
    await worker.hear(catalog.GATEWAY_REPORT, heard.note)
    await world.lose()
    with pytest.raises(BusUnavailable):
        gateway.send(catalog.GATEWAY_REPORT, gateway_report(1), "g1")
    await world.find()
    for bus in (worker, gateway):  # an answer that needs the server: both are with it again, and subscribed
        await bus.subscribe(catalog.GATEWAY_REPORT if bus is worker else catalog.REPLICA_REPORT, Heard())
    gateway.send(catalog.GATEWAY_REPORT, gateway_report(2), "g1")
    assert [message.sequence for message, _ in await heard.reach(1)] == [2]


@pytest.mark.parametrize("failure", [ValueError("no"), asyncio.CancelledError()], ids=["raises", "is cancelled inside"])
async def test_a_handler_that_fails_costs_one_message(world: World, failure: BaseException) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()

    async def fail_first(message: Any, ids: Ids) -> None:
        if message.sequence == 1:
            raise failure
        await heard(message.sequence)

    await worker.subscribe(catalog.GATEWAY_REPORT, fail_first)
    for sequence in (1, 2):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    assert await heard.reach(1) == [2]


async def test_no_handler_starts_after_close(world: World) -> None:
    gateway, worker = await world.connect("gateway"), await world.connect("replica_worker")
    closed, still_open = Heard(), Heard()
    subscription = await worker.subscribe(catalog.GATEWAY_REPORT, closed)
    await subscription.close()
    await subscription.close()
    await worker.subscribe(catalog.GATEWAY_REPORT, still_open)
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1")
    await still_open.reach(1)
    assert closed.calls == []


async def test_close_lets_a_running_handler_finish_and_starts_no_other(world: World) -> None:
    gateway, worker, heard, go_on = (
        await world.connect("gateway"),
        await world.connect("replica_worker"),
        Heard(),
        asyncio.Event(),
    )

    async def wait(message: Any, ids: Ids) -> None:
        await heard(("begin", message.sequence))
        await go_on.wait()
        await heard(("end", message.sequence))

    subscription = await worker.subscribe(catalog.GATEWAY_REPORT, wait)
    for sequence in (1, 2):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    await heard.reach(1)
    closing = asyncio.create_task(subscription.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert heard.calls == [("begin", 1), ("end", 1)]


async def test_close_cancels_a_handler_that_does_not_finish(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()

    async def hang(message: Any, ids: Ids) -> None:
        try:
            await heard("began")
            await asyncio.Future()
        except asyncio.CancelledError:
            await heard("cancelled")
            raise

    subscription = await worker.subscribe(catalog.GATEWAY_REPORT, hang)
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1")
    await heard.reach(1)
    await subscription.close()
    assert await heard.reach(2) == ["began", "cancelled"]


async def test_a_handler_may_close_its_own_subscription(world: World) -> None:
    gateway, worker, heard, other = (
        await world.connect("gateway"),
        await world.connect("replica_worker"),
        Heard(),
        Heard(),
    )

    async def close_after_first(message: Any, ids: Ids) -> None:
        await subscription.close()
        await asyncio.sleep(0)
        await heard(message.sequence)

    subscription = await worker.subscribe(catalog.GATEWAY_REPORT, close_after_first)
    await worker.subscribe(catalog.GATEWAY_REPORT, other)
    for sequence in (1, 2):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    await other.reach(2)
    assert await heard.reach(1) == [1]


async def test_a_closed_bus_says_so_and_hears_nothing(world: World) -> None:
    gateway, worker, heard, other = (
        await world.connect("gateway"),
        await world.connect("replica_worker"),
        Heard(),
        Heard(),
    )
    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    await (await world.connect("replica_worker")).subscribe(catalog.GATEWAY_REPORT, other)
    await worker.close()
    await worker.close()
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1")
    await other.reach(1)
    assert heard.calls == []
    assert not worker.connected
    with pytest.raises(BusUnavailable):
        await worker.publish(catalog.FRAME, frame(), "g1", "r1")


async def test_what_was_published_before_close_is_sent(world: World) -> None:
    gateway, worker, heard = await world.connect("gateway"), await world.connect("replica_worker"), Heard()
    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    for sequence in range(100):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(sequence), "g1")
    await gateway.close()
    assert len(await heard.reach(100)) == 100


async def test_c35_while_the_bus_is_away_everything_says_so_and_afterwards_goes_on(world: World) -> None:
    gateway, worker, registry = [await world.connect(name) for name in ("gateway", "replica_worker", "registry")]
    heard = Heard()

    async def answer(message: LoadAdapter, ids: Ids) -> HoldResult:
        return LOADED

    await worker.subscribe(catalog.GATEWAY_REPORT, heard)
    await worker.serve(catalog.LOAD, answer, "r1")
    await world.lose()
    assert not gateway.connected
    for attempt in (
        gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g1"),
        gateway.publish(catalog.GENERATE, generate(), "r1", answer_to=catalog.ANSWER.subject("g1", "q1")),
        gateway.subscribe(catalog.FRAME, heard, "g1"),
        registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=DEADLINE_S),
        worker.serve(catalog.UNLOAD, answer, "r1"),
    ):
        with pytest.raises(BusUnavailable):
            await attempt
    await world.find()
    assert gateway.connected
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(2), "g1")
    assert [message.sequence for message, _ in await heard.reach(1)] == [2]
    assert await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=DEADLINE_S) == LOADED


async def test_writing_and_reading_against_the_catalog_is_refused(world: World) -> None:
    console, gateway = await world.connect("console"), await world.connect("gateway")
    for attempt in (
        console.publish(catalog.GENERATE, generate(), "r1"),
        console.ask(catalog.CANCEL, LOAD, "r1", timeout_s=1.0),
        console.subscribe(catalog.FRAME, Heard()),
        gateway.publish(catalog.FLEET_METRICS, FleetMetrics(at_s=0.0, sequence=1, pools=(), gateways=0, streams=0)),
        gateway.serve(catalog.LOAD, Heard(), "r1"),
    ):
        with pytest.raises(PermissionError, match=r"may not (write on|read) channel"):
            await attempt


async def test_ids_that_are_no_single_token_and_messages_too_large_are_refused(world: World) -> None:
    gateway = await world.connect("gateway")
    with pytest.raises(ValueError, match="one subject token"):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "g.1")
    with pytest.raises(ValueError, match="one subject token"):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(), "*")
    with pytest.raises(ValueError, match="one subject token"):
        await gateway.subscribe(catalog.FRAME, Heard(), "g.1")
    with pytest.raises(ValueError, match="got 3 ids"):
        await gateway.subscribe(catalog.FRAME, Heard(), "g1", "r1", "more")
    with pytest.raises(ValueError, match="one subject token"):
        await gateway.state(catalog.TENANT).watch(Heard(), "t.1")
    with pytest.raises(ValueError, match=f"larger than the {MAX_MESSAGE_BYTES}"):
        await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(gateway_id="g" * MAX_MESSAGE_BYTES), "g1")


async def test_a_channel_of_another_kind_is_refused(world: World) -> None:
    gateway, registry = await world.connect("gateway"), await world.connect("registry")
    for attempt in (
        gateway.subscribe(catalog.ALIAS, Heard()),
        gateway.consume(catalog.REPLICA_REPORT, "gateway", Heard()),
        gateway.ask(catalog.GATEWAY_REPORT, gateway_report(), "g1", timeout_s=1.0),
        registry.publish(catalog.ALIAS, sample(AliasRecord), "a1"),
        registry.serve(catalog.ADAPTER_REGISTERED, Heard()),
    ):
        with pytest.raises(ValueError, match="use another method"):
            await attempt
    with pytest.raises(ValueError, match="use another method"):
        gateway.state(catalog.REPLICA_REPORT)
