"""One request, from its arrival to its end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.port import EngineFailed
from shared.contracts.catalog import DRAIN, GATEWAY_REPORT, REPLAY
from shared.messages.desired import DrainOrder
from shared.messages.generation import Accepted, Queued, Refused, Replay, Sampling
from shared.messages.reports import GatewayReport
from tests.support.replica import BASE_HASH, REPLICA_ID, Heard, Rig, rig
from tests.support.unruly_engine import UnrulyEngine, unruly


def refused(heard: Heard) -> Refused:
    assert heard.refused is not None
    assert heard.chunks == []
    return heard.refused


async def test_a_request_is_queued_accepted_and_streamed(replica: Rig) -> None:
    record = await replica.register("acme-1")
    heard = await replica.caller.run(replica.request("r1", record))
    queued, accepted = heard.answers
    assert isinstance(queued, Queued)
    assert isinstance(accepted, Accepted)
    assert (accepted.tier, accepted.adapter_id, accepted.digest) == ("remote", "acme-1", record.digest)
    assert heard.finish is not None
    assert heard.finish.reason == "length"
    assert heard.finish.usage.completion_tokens == 6
    assert heard.finish.usage.prompt_tokens == accepted.prompt_tokens
    assert [chunk.position for chunk in heard.chunks] == [0, 1, 2, 3, 4, 5]


async def test_the_tier_is_where_the_adapter_was_found(replica: Rig) -> None:
    record = await replica.register("acme-1")
    tiers = []
    for at, tier in enumerate(("disk", "ram", "gpu")):
        await replica.replica.loader.bring(record, tier)
        heard = await replica.caller.run(replica.request(f"r{at}", record))
        assert heard.accepted is not None
        tiers.append(heard.accepted.tier)
        if tier != "gpu":
            await replica.replica.loader.drop(record.key)
    assert tiers == ["disk", "ram", "gpu"]


async def test_adapters_and_the_base_each_get_their_own_tokens(replica: Rig) -> None:
    one, two = await replica.register("acme-1"), await replica.register("acme-2")
    answers = [await replica.caller.run(replica.request(f"r{at}", each)) for at, each in enumerate((one, two, None))]
    assert len({heard.token_ids for heard in answers}) == 3
    assert answers[2].accepted is not None
    assert answers[2].accepted.adapter_id is None


async def test_all_tokens_of_a_step_for_one_gateway_travel_in_one_frame(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = [await replica.caller.send(replica.request(f"r{at}", max_tokens=3)) for at in range(5)]
    await replica.caller.wait(lambda: all(each.accepted for each in heard))
    engine.go()
    await replica.caller.wait(lambda: all(each.over for each in heard))
    assert max(len(frame.chunks) for frame in replica.caller.frames) == 5
    assert [frame.number for frame in replica.caller.frames] == list(range(1, len(replica.caller.frames) + 1))


async def test_a_stop_string_ends_the_request_and_is_not_sent(replica: Rig, engine: UnrulyEngine) -> None:
    whole = (await replica.caller.run(replica.request("r1", max_tokens=40))).text
    stop = whole[10:12]
    heard = await replica.caller.run(replica.request("r2", max_tokens=40, stop=(stop,)))
    assert heard.finish is not None
    assert heard.finish.reason == "stop"
    assert heard.text == whole[: whole.index(stop)]
    assert engine.load_figures().running == 0


async def test_a_continuation_goes_on_with_the_same_stream(replica: Rig) -> None:
    whole = await replica.caller.run(replica.request("r1", max_tokens=20))
    already = whole.token_ids[:8]
    rest = await replica.caller.run(replica.request("r2", max_tokens=20, produced_token_ids=already))
    assert rest.token_ids == whole.token_ids[8:]
    assert rest.chunks[0].position == 8
    assert whole.text.endswith(rest.text)
    assert rest.finish is not None
    assert rest.finish.usage == whole.finish.usage  # type: ignore[union-attr]


async def test_a_continuation_with_nothing_left_to_produce_ends_at_once(replica: Rig) -> None:
    heard = await replica.caller.run(replica.request("r1", max_tokens=3, produced_token_ids=(5, 6, 7)))
    assert heard.finish is not None
    assert (heard.finish.reason, heard.finish.usage.completion_tokens) == ("length", 3)
    assert heard.token_ids == ()


async def test_c80_the_context_length_is_refused_with_both_numbers(replica: Rig) -> None:
    limit = replica.replica.reporter.report().max_context_tokens
    prompt = (await replica.caller.run(replica.request("r0"))).finish.usage.prompt_tokens  # type: ignore[union-attr]
    room = limit - prompt
    over = refused(await replica.caller.run(replica.request("r1", max_tokens=room + 1)))
    assert (over.code, over.elsewhere) == ("context_length_exceeded", False)
    assert str(limit) in over.message
    assert str(limit + 1) in over.message
    fits = await replica.caller.send(replica.request("r2", max_tokens=room))
    await replica.caller.wait(lambda: fits.accepted is not None)
    await replica.caller.cancel("r2")


async def test_what_does_not_belong_here_is_refused(replica: Rig) -> None:
    requests = [
        replica.request("r1", pool_id="another"),
        replica.request("r2", base_model_hash="0" * 64),
        replica.request("r3", adapter_id="acme-1"),
        msgspec.structs.replace(replica.request("r4"), sampling=Sampling(seed=1, max_tokens=4, stop=("",))),
    ]
    codes = [refused(await replica.caller.run(request)).code for request in requests]
    assert codes == ["wrong_pool", "wrong_pool", "invalid_request", "invalid_request"]


async def test_c14_an_adapter_that_is_not_known_is_never_answered_from_the_base(
    replica: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await replica.register("acme-1")
    other = msgspec.structs.replace(record, digest="f" * 64)
    monkeypatch.setattr("services.replica_worker.admission.RECORD_WAIT_S", 0.05)
    answer = refused(await replica.caller.run(replica.request("r1", other)))
    assert (answer.code, answer.elsewhere) == ("adapter_unavailable", True)


async def test_c14_an_adapter_that_was_evicted_is_loaded_again(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(6)]
    before = await replica.caller.run(replica.request("r", records[0]))
    for at, record in enumerate(records[1:]):
        await replica.caller.run(replica.request(f"r{at}", record))
    assert replica.replica.loader.tier_of(records[0].key) == "ram"
    after = await replica.caller.run(replica.request("again", records[0]))
    assert after.token_ids == before.token_ids


async def test_a_record_that_comes_a_little_later_is_waited_for(replica: Rig) -> None:
    record = await replica.register("acme-1")
    other = msgspec.structs.replace(record, adapter_id="acme-2")
    heard = await replica.caller.send(replica.request("r1", other))
    await replica.caller.wait(lambda: bool(heard.answers))
    await replica.tell(other)
    await replica.caller.wait(lambda: heard.over)
    assert heard.accepted is not None


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
    assert heard.finish.error == "no token came within 2 s"


async def test_a_request_that_waits_for_a_slot_past_its_deadline_is_refused(replica: Rig, engine: UnrulyEngine) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(5)]
    engine.hold()
    running = [await replica.caller.send(replica.request(f"r{at}", each)) for at, each in enumerate(records[:4])]
    await replica.caller.wait(lambda: all(each.accepted for each in running))
    waiting = await replica.caller.send(replica.request("late", records[4], deadline_s=1.0))
    await replica.until(lambda: replica.replica.loader.slots.waiting == 1)
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
    await replica.until(lambda: replica.replica.loader.slots.waiting == 1)
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
        await small.until(lambda: small.replica.loader.slots.waiting == 1)
        answer = refused(await small.caller.run(small.request("refused", records[2])))
        assert (answer.code, answer.elsewhere, answer.retry_after_s) == ("overloaded", True, 1.0)
        engine.go()


async def test_c64_adapters_with_endless_traffic_do_not_keep_a_cold_one_out(replica: Rig, engine: UnrulyEngine) -> None:
    hot = [await replica.register(f"hot-{at}") for at in range(4)]
    cold = await replica.register("cold")
    engine.hold()
    first = [await replica.caller.send(replica.request(f"a{at}", each)) for at, each in enumerate(hot)]
    await replica.caller.wait(lambda: all(each.accepted for each in first))
    waiting = await replica.caller.send(replica.request("cold", cold))
    await replica.until(lambda: replica.replica.loader.slots.waiting == 1)
    await replica.clock.advance(1.5)
    await replica.replica.tick()
    second = [await replica.caller.send(replica.request(f"b{at}", each)) for at, each in enumerate(hot)]
    await replica.caller.wait(lambda: sum(each.accepted is not None for each in second) == 3)
    engine.allow(6)  # the first requests end; the second ones have just begun
    await replica.caller.wait(lambda: all(each.over for each in first))
    await replica.caller.wait(lambda: waiting.accepted is not None)
    engine.go()
    await replica.caller.wait(lambda: all(each.over for each in second))


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


async def test_a_drain_order_finishes_what_runs_and_takes_nothing_new(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    running = await replica.caller.send(replica.request("r1"))
    await replica.caller.wait(lambda: running.accepted is not None)
    console = replica.broker.connect("console")
    await console.state(DRAIN).put(DrainOrder(replica_id=REPLICA_ID, reason="scaling down"), REPLICA_ID)
    await replica.stop_asked.wait()
    answer = refused(await replica.caller.run(replica.request("r2")))
    assert (answer.code, answer.elsewhere) == ("draining", True)
    assert replica.replica.reporter.report().draining
    engine.go()
    await replica.caller.wait(lambda: running.over)
    assert running.finish is not None
    assert running.finish.reason == "length"
    await console.state(DRAIN).delete(REPLICA_ID)
    again = await replica.caller.run(replica.request("r3"))
    assert again.accepted is not None


async def test_stopping_waits_for_what_runs(replica: Rig, engine: UnrulyEngine) -> None:
    heard = await replica.caller.send(replica.request("r1", max_tokens=30))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.replica.stop()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.usage.completion_tokens == 30


async def test_a_broken_engine_ends_the_replica_with_its_reason(replica: Rig, engine: UnrulyEngine) -> None:
    engine.broken = EngineFailed("out of memory")
    await replica.replica.tick()
    assert replica.stop_asked.is_set()
    assert replica.replica.failure == "the engine failed: out of memory"
    answer = refused(await replica.caller.run(replica.request("r1")))
    assert (answer.code, answer.elsewhere) == ("not_ready", True)
    assert "out of memory" in answer.message
    assert replica.replica.reporter.report().reason == "the engine failed: out of memory"
