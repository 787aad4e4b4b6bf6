"""A batch of registrations goes before evaluations, and for so long only."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from services.registry.precedence import Precedence
from shared.runtime.clock import ManualClock, SystemClock
from tests.support.registry_place import Place


@pytest.mark.parametrize("under_way", [0, 1, 3])
async def test_a_few_registrations_are_in_nobodys_way(under_way: int) -> None:
    precedence = Precedence(ManualClock(), 30.0)
    with ExitStack() as going:
        for _ in range(under_way):
            going.enter_context(precedence.going())
        await asyncio.wait_for(precedence.give_way(0.0), 5.0)


async def test_a_batch_is_given_way_to_until_it_ends() -> None:
    precedence = Precedence(ManualClock(), 30.0)
    with ExitStack() as going:
        for _ in range(4):
            going.enter_context(precedence.going())
        waiting = asyncio.create_task(precedence.give_way(0.0))
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5.0)


async def test_nobody_gives_way_for_ever() -> None:
    clock = SystemClock()
    precedence = Precedence(clock, 0.01)
    with ExitStack() as going:
        for _ in range(4):
            going.enter_context(precedence.going())
        await asyncio.wait_for(precedence.give_way(clock.wall_s()), 5.0)
        await asyncio.wait_for(precedence.give_way(clock.wall_s() - 60.0), 5.0)


async def test_what_is_verified_in_a_batch_is_evaluated_after_it(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await place.replicas("replica-a")
        with ExitStack() as batch:
            for _ in range(4):
                batch.enter_context(here.registry.precedence.going())
            await here.post(here.announce("v1"))
            assert await here.status("v1") == "verified"
        await here.reached("v1", "active")
