"""A gateway that may have missed a replica's word on a request asks once more, under the same id."""

from __future__ import annotations

from services.replica_worker.core.answered import Answered
from shared.bus.port import Ids
from shared.contracts.catalog import ANSWER, GENERATE
from shared.messages.generation import Answer, Queued, Refused
from tests.support.replica import REPLICA_ID, Heard, Rig
from tests.support.unruly_engine import UnrulyEngine


def kinds(heard: Heard) -> list[str]:
    return [type(each).__name__ for each in heard.answers]


async def test_one_that_was_accepted_is_told_so_again_and_runs_once(replica: Rig) -> None:
    request = replica.request("r", max_tokens=3)
    heard = await replica.caller.run(request)
    await replica.caller.send(request)
    await replica.caller.wait(lambda: len(heard.answers) == 3)
    assert kinds(heard) == ["Queued", "Accepted", "Accepted"]
    assert heard.answers[1] == heard.answers[2]
    other = await replica.caller.run(replica.request("other", max_tokens=3))
    assert len(other.chunks) == len(heard.chunks) == 3, "nothing is produced twice"


async def test_its_gateway_learns_which_frame_was_the_last(replica: Rig) -> None:
    request = replica.request("r", max_tokens=3)
    heard = await replica.caller.run(request)
    *_, last = replica.caller.frames
    await replica.clock.advance(60.0)
    await replica.caller.send(request)
    await replica.caller.wait(lambda: len(heard.answers) == 3)
    await replica.replica.generation.beat()
    await replica.caller.wait(lambda: replica.caller.frames[-1] is not last)
    assert (replica.caller.frames[-1].chunks, replica.caller.frames[-1].number) == ((), last.number)


async def test_one_that_was_refused_is_refused_again_in_the_same_words(replica: Rig) -> None:
    request = replica.request("r", messages=())
    heard = await replica.caller.run(request)
    await replica.caller.send(request)
    await replica.caller.wait(lambda: len(heard.answers) == 3)
    assert kinds(heard) == ["Queued", "Refused", "Refused"]
    assert heard.answers[1] == heard.answers[2]


async def test_one_that_waits_is_still_one(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    engine.copying.clear()
    heard = await replica.caller.send(request := replica.request("r", record, max_tokens=2))
    await replica.caller.wait(lambda: len(heard.answers) == 1)
    await replica.caller.send(request)
    await replica.caller.wait(lambda: len(heard.answers) == 2)
    engine.copying.set()
    await replica.caller.wait(lambda: heard.over)
    assert kinds(heard) == ["Queued", "Queued", "Accepted"]
    assert [chunk.position for chunk in heard.chunks] == [0, 1]


async def test_one_that_was_dropped_because_nobody_could_be_told_begins_anew(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    engine.copying.clear()
    heard = await replica.caller.send(request := replica.request("r", record, max_tokens=2))
    await replica.caller.wait(lambda: len(heard.answers) == 1)
    replica.broker.disconnect(replica.bus)
    engine.copying.set()
    while replica.replica.generation.open:
        await replica.clock.advance(0.2)
    replica.broker.reconnect(replica.bus)
    await replica.caller.run(request)
    assert kinds(heard) == ["Queued", "Queued", "Accepted"]


async def test_words_that_may_not_have_left_are_said_again_once_the_replica_is_back(replica: Rig) -> None:
    told: list[Answer] = []

    async def on_answer(answer: Answer, ids: Ids) -> None:
        told.append(answer)

    listener, asker = replica.broker.connect("gateway"), replica.broker.connect("gateway")
    await listener.subscribe(ANSWER, on_answer, "gateway-2")
    await asker.publish(GENERATE, replica.request("old", messages=(), gateway_id="gateway-2"), REPLICA_ID)
    await replica.until(lambda: len(told) == 2)
    await replica.clock.advance(10.0)
    await replica.replica.tick()
    replica.broker.disconnect(listener)
    await asker.publish(GENERATE, replica.request("lost", messages=(), gateway_id="gateway-2"), REPLICA_ID)
    await replica.clock.advance(0.1)
    replica.broker.reconnect(listener)
    replica.broker.disconnect(replica.bus)
    await replica.clock.advance(60.0)
    await replica.replica.tick()
    replica.broker.reconnect(replica.bus)
    await replica.replica.tick()
    await replica.until(lambda: len(told) == 3)
    assert [(type(each), each.request_id) for each in told] == [
        (Queued, "old"), (Refused, "old"), (Refused, "lost"),
    ], "the one of long before has arrived"  # fmt: skip


def test_only_the_latest_words_are_kept() -> None:
    answered = Answered(most=2)
    words = [
        Refused(request_id=each, replica_id="a", code="draining", message="No.", elsewhere=True) for each in "abc"
    ]  # fmt: skip
    for word in words:
        answered.note(word, "gateway-1", 0.0)
    assert [answered.word_on(each) for each in "abcd"] == [None, *words[1:], None]
