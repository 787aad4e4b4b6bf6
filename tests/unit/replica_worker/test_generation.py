"""One request, from its arrival to its end."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from services.replica_worker.core.capacity import Capacity
from services.replica_worker.requests.running import Running
from shared.messages.generation import Accepted, Queued, Sampling
from tests.support.replica import Rig, refused
from tests.support.unruly_engine import UnrulyEngine


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
    assert (answers[2].accepted.tier, answers[2].accepted.adapter_id) == ("gpu", None)


async def test_all_tokens_of_a_step_for_one_gateway_travel_in_one_frame(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = [await replica.caller.send(replica.request(f"r{at}", max_tokens=3)) for at in range(5)]
    await replica.caller.wait(lambda: all(each.accepted for each in heard))
    engine.go()
    await replica.caller.wait(lambda: all(each.over for each in heard))
    assert max(len(frame.chunks) for frame in replica.caller.frames) == 5
    assert [frame.number for frame in replica.caller.frames] == list(range(1, len(replica.caller.frames) + 1))


async def test_a_request_with_nobody_before_it_has_its_turn_without_a_turn_of_the_loop(replica: Rig) -> None:
    dispatcher = replica.replica.generation.dispatcher
    alone = Running(request=replica.request("r1"), arrived_at_s=0.0)
    with pytest.raises(StopIteration):
        dispatcher.turn(alone, None).send(None)
    assert dispatcher.handed == 1
    dispatcher.leave(alone)


async def test_a_stop_string_ends_the_request_and_is_not_sent(replica: Rig, engine: UnrulyEngine) -> None:
    whole = (await replica.caller.run(replica.request("r1", max_tokens=40))).text
    stop = whole[10:12]
    heard = await replica.caller.run(replica.request("r2", max_tokens=40, stop=(stop,)))
    assert heard.finish is not None
    assert heard.finish.reason == "stop"
    assert heard.text == whole[: whole.index(stop)]
    assert engine.load_figures().running == 0


async def test_an_answer_that_a_stop_string_ends_takes_no_row_after_that_step(
    replica: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (await replica.caller.run(replica.request("r1", max_tokens=40))).text
    told: list[tuple[frozenset[str], int]] = []

    def note(_: Capacity, tokens: Mapping[str, int], ended: frozenset[str], running: int, now_s: float) -> None:
        told.append((ended, running))

    monkeypatch.setattr(Capacity, "step", note)
    await replica.caller.run(replica.request("r2", max_tokens=40, stop=(whole[10:12],)))
    assert told[0] == (frozenset(), 1)
    assert told[-1] == (frozenset({"r2"}), 0)


async def test_a_continuation_goes_on_with_the_same_stream(replica: Rig) -> None:
    whole = await replica.caller.run(replica.request("r1", max_tokens=20))
    already = whole.token_ids[:8]
    continued = replica.request("r2", max_tokens=20, produced_token_ids=already, cache_salt="another replica's cache")
    rest = await replica.caller.run(continued)
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


async def test_what_a_lost_replica_held_back_is_sent_by_the_one_after_it(replica: Rig) -> None:
    whole = await replica.caller.run(replica.request("r1"))
    might_stop = (whole.text[-1] + "and more",)
    rest = await replica.caller.run(replica.request("r2", stop=might_stop, produced_token_ids=whole.token_ids))
    assert rest.text == whole.text[-1]
    assert rest.finish is not None
    assert rest.finish.reason == "length"


async def test_c80_the_context_length_is_refused_with_both_numbers(replica: Rig) -> None:
    limit = replica.replica.reporter.report().max_context_tokens
    prompt = (await replica.caller.run(replica.request("r0"))).finish.usage.prompt_tokens  # type: ignore[union-attr]
    room = limit - prompt
    over = refused(await replica.caller.run(replica.request("r1", max_tokens=room + 1)))
    assert (over.code, over.elsewhere) == ("context_length_exceeded", False)
    assert str(limit) in over.message
    assert str(limit + 1) in over.message
    assert over.about == "max_tokens"
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
    monkeypatch.setattr("services.replica_worker.requests.admission.RECORD_WAIT_S", 0.05)
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
