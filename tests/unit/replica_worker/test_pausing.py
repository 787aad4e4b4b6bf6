"""A running request gives its slot to one that waits, and goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.requests.running import Running
from shared.messages.desired import AdapterRecord
from tests.support.replica import BASE_HASH, Heard, Rig, rig
from tests.support.replica_operations import load, unload
from tests.support.unruly_engine import UnrulyEngine, unruly

LONG = 60


@pytest.fixture
def engine() -> UnrulyEngine:
    return unruly(BASE_HASH, slots=1)


@pytest.fixture
async def replica(tmp_path: Path, model_folder: Path, engine: UnrulyEngine) -> AsyncIterator[Rig]:
    async with rig(tmp_path, model_folder, engine=engine, slots=1) as built:
        yield built


class Turns:
    """One slot, an answer that has begun on it, and another adapter that wants it."""

    def __init__(self, replica: Rig, engine: UnrulyEngine, first: AdapterRecord, second: AdapterRecord) -> None:
        self.replica = replica
        self.engine = engine
        self.first = first
        self.second = second

    async def begin(self, tokens: int) -> Heard:
        self.engine.hold()
        heard = await self.replica.caller.send(self.replica.request("long", self.first, max_tokens=LONG))
        self.engine.allow(tokens)
        await self.replica.caller.wait(lambda: len(heard.token_ids) == tokens)
        return heard

    async def pause(self) -> Heard:
        """The other one has the slot; its requests wait for the engine's next step."""
        other = await self.replica.caller.send(self.replica.request("other", self.second, max_tokens=LONG))
        await self.replica.until(lambda: self.replica.replica.generation.dispatcher.waiting == 1)
        await self.replica.clock.advance(0.3)
        await self.replica.replica.tick()
        await self.replica.until(lambda: self.engine.held_digest(0) == self.second.digest)
        await self.replica.caller.wait(lambda: other.accepted is not None)
        assert self.paused() == 1
        return other

    async def swap(self, runs: Heard) -> None:
        """Whoever runs makes a token, and gives the slot back to the other one, which makes none yet."""
        before, produced = self.paused(), len(runs.token_ids)
        self.engine.allow(2)
        await self.replica.caller.wait(lambda: len(runs.token_ids) > produced)
        self.engine.hold()
        await self.replica.clock.advance(1.1)
        await self.replica.replica.tick()
        dispatcher = self.replica.replica.generation.dispatcher
        await self.replica.until(lambda: self.paused() > before and dispatcher.waiting == 1 and dispatcher.handed == 1)

    def paused(self) -> float:
        return self.replica.meters.paused._value.get()

    def computed_again(self) -> float:
        return self.replica.meters.resumed_tokens_computed._value.get()


@pytest.fixture
async def turns(replica: Rig, engine: UnrulyEngine) -> Turns:
    return Turns(replica, engine, await replica.register("first"), await replica.register("second"))


async def test_a_paused_answer_is_the_same_answer(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    alone = await replica.caller.run(replica.request("alone", turns.first, max_tokens=LONG))
    heard = await turns.begin(tokens=37)
    other = await turns.pause()
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    assert heard.token_ids == alone.token_ids
    assert heard.text == alone.text
    assert heard.finish is not None
    assert heard.finish.usage.completion_tokens == LONG, "every token is counted once"
    assert [chunk.position for chunk in heard.chunks if chunk.token_ids] == list(range(LONG))
    assert turns.computed_again() <= 16, "full blocks are found again"
    await replica.settled()
    replica.assert_sound()


async def test_a_prefix_that_was_evicted_is_computed_again(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    alone = await replica.caller.run(replica.request("alone", turns.first, max_tokens=LONG))
    heard = await turns.begin(tokens=37)
    other = await turns.pause()
    engine._schedule.forget(turns.first.digest)  # as if others had needed the blocks
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    assert heard.token_ids == alone.token_ids
    assert turns.computed_again() >= 36


@pytest.mark.parametrize("stop", ["cancel", "drain", "gateway"])
async def test_whatever_ends_a_paused_request_leaves_nothing(
    replica: Rig, engine: UnrulyEngine, turns: Turns, stop: str
) -> None:
    heard = await turns.begin(tokens=5)
    await turns.pause()
    if stop == "cancel":
        assert (await replica.caller.cancel("long")).found
        await replica.caller.cancel("other")
    elif stop == "drain":
        await replica.replica.generation.end_all("the replica stopped")
    else:
        await replica.clock.advance(60.0)
        await replica.replica.tick()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.reason == "cancelled", "for no fault of the request's: another replica may go on"
    assert (heard.finish.error is None) == (stop == "cancel")
    assert heard.finish.usage.completion_tokens == 5
    engine.go()
    await replica.settled()
    replica.assert_sound()


async def test_an_adapter_that_cannot_be_loaded_again_ends_the_stream(
    replica: Rig, engine: UnrulyEngine, turns: Turns
) -> None:
    heard = await turns.begin(tokens=5)
    other = await turns.pause()
    engine.fail("load", AdapterUnusable("planted"))
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    assert heard.refused is None, "it was accepted: a refusal would come too late"
    assert heard.finish is not None
    assert heard.finish.reason == "error"
    await replica.settled()
    replica.assert_sound()


async def test_a_request_without_a_first_token_is_not_paused(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    engine.hold()
    await replica.caller.send(replica.request("long", turns.first, max_tokens=LONG))
    await replica.caller.send(replica.request("other", turns.second))
    await replica.until(lambda: replica.replica.generation.dispatcher.waiting == 1)
    await replica.clock.advance(5.0)
    await replica.replica.tick()
    await replica.until(lambda: not replica.replica.generation.dispatcher._due)
    assert turns.paused() == 0
    engine.go()
    await replica.settled()


async def test_nothing_is_paused_where_nobody_waits_for_a_slot(
    replica: Rig, engine: UnrulyEngine, turns: Turns
) -> None:
    heard = await turns.begin(tokens=5)
    for at in range(40):  # more than there are rows
        await replica.caller.send(replica.request(f"r{at}", turns.first if at % 2 else None))
    await replica.clock.advance(30.0)
    await replica.replica.tick()
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert turns.paused() == 0


async def test_a_request_that_ends_before_its_resumption_has_begun_leaves_nothing(
    replica: Rig, engine: UnrulyEngine, turns: Turns
) -> None:
    generation = replica.replica.generation
    pause = generation.dispatcher._on_pause

    def ended_at_once(running: Running, turn: Awaitable[None]) -> None:
        asyncio.get_running_loop().call_soon(generation._open.stop, running, "cancelled")
        pause(running, turn)

    generation.dispatcher._on_pause = ended_at_once
    heard = await turns.begin(tokens=5)
    await turns.pause()
    await replica.caller.wait(lambda: heard.over)
    engine.go()
    await replica.settled()
    replica.assert_sound()
    gc.collect()  # a coroutine that was made and never run would say so here


async def test_nobody_is_paused_again_before_a_token_has_come(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    heard = await turns.begin(tokens=5)
    other = await turns.pause()
    await turns.swap(other)
    await replica.clock.advance(1.1)
    await replica.replica.tick()
    await replica.until(lambda: not replica.replica.generation.dispatcher._due)
    assert turns.paused() == 2, "the first one has its slot again, and has not come any further"
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    assert len(heard.token_ids) == len(other.token_ids) == LONG


async def test_what_is_left_is_promised_however_often_a_request_was_paused(
    replica: Rig, engine: UnrulyEngine, turns: Turns
) -> None:
    heard = await turns.begin(tokens=5)
    other = await turns.pause()
    for paused, went_on in ((other, heard), (heard, other)):
        await turns.swap(paused)
        assert paused.accepted is not None
        left = paused.accepted.prompt_tokens + LONG - len(paused.token_ids)
        assert turns.replica.replica.generation.dispatcher.room.queued_tokens == left
        assert not went_on.over
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)


async def test_an_adapter_whose_answer_is_paused_is_in_use(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    heard = await turns.begin(tokens=5)
    other = await turns.pause()
    refused = await unload(replica, turns.first)
    assert (refused.ok, refused.reason) == (False, "answers that are paused go on with it")
    assert replica.replica.loader.in_use(turns.first.key), "a retired one stays until it is over"
    assert replica.replica.loader.ram.holds(turns.first.key)
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    await replica.settled()
    assert not replica.replica.loader.in_use(turns.first.key)
    assert (await unload(replica, turns.first)).ok


async def test_an_operation_does_not_wait_for_a_whole_answer(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    heard = await turns.begin(tokens=5)
    loading = asyncio.create_task(load(replica, turns.second))
    await replica.until(lambda: replica.replica.loader.queue.waiting == 1)
    for advance_s in (1.1, 0.1):  # to close the slot, and to pause what is on it
        await replica.clock.advance(advance_s)
        await replica.replica.tick()
    assert (await loading).ok
    assert turns.paused() == 1
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert len(heard.token_ids) == LONG
    await replica.settled()
    replica.assert_sound()


async def test_an_operation_takes_no_slot_that_was_made_free_for_another(
    replica: Rig, engine: UnrulyEngine, turns: Turns
) -> None:
    third = await replica.register("third")
    heard = await turns.begin(tokens=5)
    loading = asyncio.create_task(load(replica, third))
    await replica.until(lambda: replica.replica.loader.queue.waiting == 1)
    other = await turns.pause()
    assert replica.replica.loader.queue.waiting == 1
    engine.go()
    await replica.caller.wait(lambda: heard.over and other.over)
    assert (await loading).ok


async def test_an_engine_that_fails_ends_what_is_paused_once(replica: Rig, engine: UnrulyEngine, turns: Turns) -> None:
    heard = await turns.begin(tokens=5)
    other = await turns.pause()
    engine.break_down()
    await replica.replica.tick()
    await replica.caller.wait(lambda: heard.over and other.over)
    await asyncio.wait_for(replica.stop_asked.wait(), 5.0)
    for each in (heard, other):
        assert [chunk.finish.reason for chunk in each.chunks if chunk.finish] == ["error"]
        assert each.refused is None
    assert heard.finish is not None
    assert heard.finish.usage.completion_tokens == 5
    await replica.replica.generation.idle()
    replica.assert_sound()
