"""A batch of registrations goes before evaluations, and leaves room for some."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from services.registry.core.records import adapter_record
from services.registry.precedence import Precedence
from tests.support.held_replica import HeldReplica
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually
from tests.support.registry_world import World


@pytest.mark.parametrize("under_way", [0, 1, 3])
async def test_a_few_registrations_are_in_nobodys_way(under_way: int) -> None:
    precedence = Precedence()
    with ExitStack() as going:
        for _ in range(under_way):
            going.enter_context(precedence.going())
        assert not precedence.batch


async def test_the_end_of_a_batch_is_told_once() -> None:
    precedence, told = Precedence(), list[bool]()
    over = asyncio.Event()
    precedence.follow(lambda: told.append(precedence.batch))
    precedence.follow(over.set)
    with ExitStack() as going:
        for _ in range(6):
            going.enter_context(precedence.going())
        assert precedence.batch
    assert precedence.batch  # its sender may be on its way with the next ones
    await asyncio.wait_for(over.wait(), 5.0)
    assert told == [False]


async def test_in_a_batch_one_evaluation_is_under_way_and_after_it_all_of_them(place: Place) -> None:
    async with place.registry(evaluation_gives_way_s=1e6) as here:
        await here.prepare()
        replica = await HeldReplica.at(place)
        with ExitStack() as batch:
            for _ in range(4):
                batch.enter_context(here.registry.precedence.going())
            for number in range(3):
                await here.post(here.announce(f"v{number}", seed=number))
            await here.reached("v0", "evaluating")
            assert [await here.status(f"v{number}") for number in (1, 2)] == ["verified"] * 2
            await eventually(lambda: all_asked(replica, 1))
            assert [await is_wanted(here, f"v{number}") for number in range(3)] == [True, False, False]
        await eventually(lambda: all_asked(replica, 3))
        replica.may.set()
        for number in range(3):
            await here.reached(f"v{number}", "active")


async def test_a_batch_that_does_not_end_lets_every_adapter_be_evaluated(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await place.replicas("replica-a")
        with ExitStack() as batch:
            for _ in range(4):
                batch.enter_context(here.registry.precedence.going())
            await registered(here, 4)
            for number in range(4):
                await here.reached(f"v{number}", "active")
            assert here.registry.precedence.batch


async def registered(here: World, count: int) -> None:
    for number in range(count):
        await here.post(here.announce(f"v{number}", seed=number))


async def is_wanted(here: World, adapter_id: str) -> bool:
    """Whether replicas are to hold it, and so fetch it."""
    adapter = await here.registry.adapters.find(adapter_id)
    assert adapter is not None
    return adapter_record(adapter).wanted


async def all_asked(replica: HeldReplica, count: int) -> bool:
    return len({question.record.adapter_id for question in replica.asked}) == count
