"""All the ways in which a request, or a replica, comes to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.replica_worker.engine.figures import EngineLoad
from shared.bus.port import BusUnavailable
from shared.contracts.catalog import GATEWAY_REPORT, REPLAY
from shared.messages.generation import Accepted, Frame, Refused, Replay
from shared.messages.reports import GatewayReport
from tests.support.replica import BASE_HASH, REPLICA_ID, Heard, Rig, refused, rig
from tests.support.unruly_engine import UnrulyEngine, unruly


def slow_to_send(kind: type, replica: Rig, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Messages of this kind set the first event, and the bus takes none of them before the second is set."""
    sending, go_on = asyncio.Event(), asyncio.Event()
    send = replica.bus.send

    def slowly(channel: Any, message: Any, *ids: str, **options: Any) -> None:
        if isinstance(message, kind) and not go_on.is_set():
            sending.set()
            raise BusUnavailable("it takes nothing now")
        send(channel, message, *ids, **options)

    monkeypatch.setattr(replica.bus, "send", slowly)
    return sending, go_on


async def test_c76_a_cancelled_request_stops_releases_and_reports_what_it_used(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record, max_tokens=500))
    engine.allow(4)
    await replica.caller.wait(lambda: len(heard.chunks) >= 3)
    assert (await replica.caller.cancel("r1")).found
    assert replica.replica.loader.slots.table.references == 0
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.reason == "cancelled"
    assert heard.finish.usage.completion_tokens == len(heard.token_ids)
    engine.go()
    await replica.caller.run(replica.request("r2", record))
    assert len(heard.token_ids) == heard.finish.usage.completion_tokens


async def test_cancelling_what_is_not_there_or_another_gateways_finds_nothing(
    replica: Rig, engine: UnrulyEngine
) -> None:
    engine.hold()
    foreign = replica.request("r1", gateway_id="gateway-2")
    await replica.caller.send(foreign)
    assert not (await replica.caller.cancel("r1")).found
    assert not (await replica.caller.cancel("nothing")).found
    engine.go()


async def test_a_request_that_is_cancelled_while_its_acceptance_is_sent_never_runs(
    replica: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await replica.register("acme-1")
    sending, sent = slow_to_send(Accepted, replica, monkeypatch)
    heard = await replica.caller.send(replica.request("r1", record, max_tokens=100))
    async with asyncio.timeout(5):
        await sending.wait()
    assert (await replica.caller.cancel("r1")).found
    sent.set()
    await replica.caller.wait(lambda: heard.finish is not None)
    await replica.caller.run(replica.request("r2", record))
    assert heard.token_ids == ()
    assert engine.load_figures().running == 0


async def test_a_request_that_is_told_twice_runs_once(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.caller.send(replica.request("r1"))
    await replica.until(lambda: len(heard.answers) == 3)
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert [chunk.position for chunk in heard.chunks] == [0, 1, 2, 3, 4, 5]


async def test_a_request_whose_first_token_does_not_come_in_time_is_ended(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", deadline_s=2.0))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.clock.advance(1.9)
    await replica.replica.tick()
    assert not heard.over
    await replica.clock.advance(0.2)
    await replica.replica.tick()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.error == "no token came in time"


async def test_a_request_that_answers_while_another_is_refused_for_lateness_is_not_late(
    replica: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing, go_on = slow_to_send(Refused, replica, monkeypatch)
    engine.copying.clear()
    engine.hold()
    loads = await replica.caller.send(replica.request("loads", await replica.register("acme-1"), deadline_s=2.0))
    ends, begins = [
        await replica.caller.send(replica.request(name, max_tokens=tokens, deadline_s=2.0))
        for name, tokens in (("ends", 1), ("begins", 1_000))
    ]
    await replica.caller.wait(lambda: bool(ends.accepted and begins.accepted))
    await replica.clock.advance(2.5)
    ticking = asyncio.create_task(replica.replica.tick())
    async with asyncio.timeout(5):
        await refusing.wait()
    engine.allow(1)
    await replica.caller.wait(lambda: ends.over and bool(begins.chunks))
    go_on.set()
    await replica.clock.advance(0.2)
    await ticking
    engine.copying.set()
    await replica.caller.wait(lambda: loads.over)
    await replica.caller.cancel("begins")
    await replica.caller.wait(lambda: begins.over)
    finishes = [chunk.finish.reason for heard in (ends, begins) for chunk in heard.chunks if chunk.finish]
    assert finishes == ["length", "cancelled"]


async def test_a_request_that_waits_for_a_slot_past_its_deadline_is_refused(replica: Rig, engine: UnrulyEngine) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(5)]
    engine.hold()
    running = [await replica.caller.send(replica.request(f"r{at}", each)) for at, each in enumerate(records[:4])]
    await replica.caller.wait(lambda: all(each.accepted for each in running))
    waiting = await replica.caller.send(replica.request("late", records[4], deadline_s=1.0))
    await replica.until(lambda: replica.replica.generation.dispatcher.waiting == 1)
    await replica.clock.advance(1.0)
    await replica.replica.tick()
    await replica.caller.wait(lambda: waiting.over)
    assert refused(waiting).code == "deadline"
    assert replica.replica.loader.slots.table.references == 4


async def test_a_request_that_waits_for_a_slot_gets_the_first_that_is_free(replica: Rig, engine: UnrulyEngine) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(5)]
    engine.hold()
    running = [await replica.caller.send(replica.request(f"r{at}", each)) for at, each in enumerate(records[:4])]
    await replica.caller.wait(lambda: all(each.accepted for each in running))
    waiting = await replica.caller.send(replica.request("next", records[4]))
    await replica.until(lambda: replica.replica.generation.dispatcher.waiting == 1)
    await replica.caller.cancel("r2")
    await replica.caller.wait(lambda: waiting.accepted is not None)
    assert replica.replica.loader.tier_of(records[2].key) == "ram"


async def test_a_full_queue_refuses_with_an_honest_wait(tmp_path: Path, model_folder: Path) -> None:
    engine = unruly(BASE_HASH, slots=1)
    async with rig(tmp_path, model_folder, engine=engine, slots=1, queue_limit=1) as small:
        records = [await small.register(f"acme-{at}") for at in range(3)]
        engine.hold()
        running = await small.caller.send(small.request("runs", records[0]))
        await small.caller.wait(lambda: running.accepted is not None)
        await small.caller.send(small.request("waits", records[1]))
        await small.until(lambda: small.replica.generation.dispatcher.waiting == 1)
        answer = refused(await small.caller.run(small.request("refused", records[2])))
        assert (answer.code, answer.elsewhere, answer.retry_after_s) == ("overloaded", True, 1.0)
        engine.go()


def _settled(heard: list[Heard]) -> int:
    return sum(each.accepted is not None or each.refused is not None for each in heard)


async def test_a_burst_is_counted_as_it_comes(tmp_path: Path, model_folder: Path) -> None:
    engine = unruly(BASE_HASH)
    async with rig(tmp_path, model_folder, engine=engine, max_rows=4, queue_limit=8) as small:
        engine.hold()
        heard = [await small.caller.send(small.request(f"a{at}", max_tokens=1)) for at in range(4)]
        await small.caller.wait(lambda: all(each.accepted for each in heard))
        for burst in "bcd":
            heard.extend([await small.caller.send(small.request(f"{burst}{at}")) for at in range(6)])
            await small.until(lambda: _settled(heard) + small.replica.generation.dispatcher.waiting == len(heard))
        assert sum(each.refused is None for each in heard) == 4 + 8
        assert {each.refused.code for each in heard if each.refused} == {"overloaded"}
        assert small.replica.reporter.report().queue_depth == 8
        engine.go()


async def test_who_waits_for_room_in_the_kv_cache_is_counted(replica: Rig) -> None:
    short_of_room = EngineLoad(running=1, waiting=3, tokens_in_flight=0, kv_bytes_used=0, steps=0, tokens_per_s=0.0)
    assert replica.replica.reporter.report().queue_depth == 0
    replica.replica._watch.load = short_of_room
    assert replica.replica.reporter.report().queue_depth == 3


async def test_c64_adapters_with_endless_traffic_do_not_keep_a_cold_one_out(replica: Rig, engine: UnrulyEngine) -> None:
    hot = [await replica.register(f"hot-{at}") for at in range(4)]
    cold = await replica.register("cold")
    engine.hold()
    first = [await replica.caller.send(replica.request(f"a{at}", each)) for at, each in enumerate(hot)]
    await replica.caller.wait(lambda: all(each.accepted for each in first))
    waiting = await replica.caller.send(replica.request("cold", cold))
    await replica.until(lambda: replica.replica.generation.dispatcher.waiting == 1)
    await replica.clock.advance(1.5)
    await replica.replica.tick()
    second = [await replica.caller.send(replica.request(f"b{at}", each)) for at, each in enumerate(hot)]
    await replica.caller.wait(lambda: sum(each.accepted is not None for each in second) == 3)
    engine.allow(6)  # one slot takes nothing new; on the others the second requests go on where the first ones end
    await replica.caller.wait(lambda: waiting.accepted is not None)
    engine.go()
    await replica.caller.wait(lambda: all(each.over for each in [*first, *second, waiting]))


async def test_tokens_in_flight_are_context_and_what_may_still_come(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", max_tokens=50))
    await replica.caller.wait(lambda: heard.accepted is not None)
    promised = heard.accepted.prompt_tokens + 50  # type: ignore[union-attr]
    assert replica.replica.reporter.report().tokens_in_flight == promised
    engine.allow(3)
    await replica.caller.wait(lambda: len(heard.chunks) >= 2)
    assert replica.replica.reporter.report().tokens_in_flight == promised
    await replica.caller.cancel("r1")
    assert replica.replica.reporter.report().tokens_in_flight == 0


async def test_a_silent_gateway_loses_its_requests(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    gateway = replica.broker.connect("gateway")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.caller.wait(lambda: heard.accepted is not None)
    report = GatewayReport(gateway_id="gateway-1", sequence=1, streams=1, requests=1, refused=0, tokens=0)
    await replica.clock.advance(2.5)
    await gateway.publish(GATEWAY_REPORT, report, "gateway-1")
    await replica.clock.advance(2.5)
    await replica.replica.tick()
    assert replica.replica.generation.open == 1
    await replica.clock.advance(0.6)
    await replica.replica.tick()
    assert replica.replica.generation.open == 0
    assert replica.replica.loader.slots.table.references == 0


async def test_a_gateway_that_lost_only_the_bus_learns_how_its_requests_ended(
    replica: Rig, engine: UnrulyEngine
) -> None:
    gateway = replica.broker.connect("gateway")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1"))
    engine.allow(2)
    await replica.caller.wait(lambda: len(heard.chunks) == 2)
    replica.broker.disconnect(replica.caller.bus)
    await replica.clock.advance(4.0)
    await replica.replica.tick()
    await replica.until(lambda: replica.replica.generation.open == 0)
    replica.broker.reconnect(replica.caller.bus)
    await replica.replica.generation.beat()
    report = GatewayReport(gateway_id="gateway-1", sequence=9, streams=1, requests=1, refused=0, tokens=2)
    await gateway.publish(GATEWAY_REPORT, report, "gateway-1")
    await replica.clock.advance(0.5)
    await replica.replica.generation.beat()
    await replica.caller.wait(lambda: not replica.caller.frames[-1].chunks)
    assert replica.caller.frames[-1].number == 3
    ask = Replay(gateway_id="gateway-1", incarnation="first", first=3, last=3)
    [missed] = (await gateway.ask(REPLAY, ask, REPLICA_ID, timeout_s=5)).frames
    assert missed.chunks[0].finish is not None
    assert missed.chunks[0].finish.error == "the gateway was silent for too long"


async def test_nobody_is_silent_while_the_worker_itself_hears_nothing(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: heard.accepted is not None)
    replica.broker.disconnect(replica.bus)
    await replica.clock.advance(10.0)
    await replica.replica.tick()
    replica.broker.reconnect(replica.bus)
    await replica.clock.advance(1.0)
    await replica.replica.tick()
    assert replica.replica.generation.open == 1


async def test_a_quiet_stream_repeats_the_last_number_and_a_gap_is_replayed(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1"))
    engine.allow(3)
    await replica.caller.wait(lambda: len(heard.chunks) >= 3)
    sent = [frame for frame in replica.caller.frames if frame.chunks]
    await replica.replica.generation.beat()
    await replica.caller.wait(lambda: not replica.caller.frames[-1].chunks)
    assert replica.caller.frames[-1].number == sent[-1].number
    gateway = replica.broker.connect("gateway")
    ask = Replay(gateway_id="gateway-1", incarnation="first", first=2, last=3)
    replayed = await gateway.ask(REPLAY, ask, REPLICA_ID, timeout_s=5)
    assert list(replayed.frames) == sent[1:3]
    gone = await gateway.ask(REPLAY, msgspec.structs.replace(ask, incarnation="before"), REPLICA_ID, timeout_s=5)
    assert gone.missing


async def test_a_frame_that_no_bus_would_take_is_lost_alone(replica: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    send, frames = replica.bus.send, 0

    def refusing_the_first(channel: Any, message: Any, *ids: str, **options: Any) -> None:
        nonlocal frames
        frames += isinstance(message, Frame)
        if frames == 1:
            raise ValueError("too large")
        send(channel, message, *ids, **options)

    monkeypatch.setattr(replica.bus, "send", refusing_the_first)
    heard = await replica.caller.run(replica.request("r1"))
    assert heard.chunks[0].position == 1
    assert heard.finish is not None


async def test_a_lost_last_frame_is_noticed_after_the_stream_has_ended(replica: Rig) -> None:
    await replica.caller.run(replica.request("r1"))
    written = len(replica.caller.frames)
    await replica.clock.advance(2.5)
    await replica.replica.generation.beat()
    await replica.caller.wait(lambda: len(replica.caller.frames) == written + 1)
    assert replica.caller.frames[-1].number == replica.caller.frames[-2].number
    await replica.clock.advance(1.0)
    await replica.replica.generation.beat()
    await replica.caller.run(replica.request("r2"))
    assert all(frame.chunks for frame in replica.caller.frames[written + 1 :])
