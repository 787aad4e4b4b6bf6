from __future__ import annotations

import asyncio

import pytest

from shared.runtime.clock import Clock, ManualClock, SystemClock


async def test_sleepers_wake_in_the_order_of_their_time_and_see_it_as_now() -> None:
    clock, woken = ManualClock(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep_s(seconds)
        woken.append((name, clock.now_s()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("late", 3.0), ("early", 1.0), ("second of two", 2.0), ("after it", 2.0)]:
            group.create_task(sleeper(name, seconds))
        await clock.advance(2.5)
        assert woken == [("early", 1.0), ("second of two", 2.0), ("after it", 2.0)]
        assert clock.now_s() == 2.5
        assert clock.next_wake_s == 3.0
        await clock.advance(0.5)
    assert woken[-1] == ("late", 3.0)
    assert clock.next_wake_s is None


async def test_a_loop_that_sleeps_again_is_woken_again_in_one_advance() -> None:
    clock, turns = ManualClock(start_s=10.0), list[float]()

    async def loop() -> None:
        while len(turns) < 4:
            await clock.sleep_s(0.5)
            turns.append(clock.now_s())

    task = asyncio.create_task(loop())
    await clock.advance(60.0)
    assert turns == [10.5, 11.0, 11.5, 12.0]
    assert clock.now_s() == clock.wall_s() == 70.0
    await task


async def test_a_cancelled_sleeper_stops_nobody() -> None:
    clock = ManualClock()
    gone, stays = asyncio.create_task(clock.sleep_s(1.0)), asyncio.create_task(clock.sleep_s(2.0))
    await asyncio.sleep(0)
    gone.cancel()
    await clock.advance(2.0)
    assert stays.done()
    await asyncio.gather(gone, stays, return_exceptions=True)
    assert gone.cancelled()


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["manual", "system"])
@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_sleep_of_nothing_gives_others_a_turn(clock: Clock, seconds: float) -> None:
    other = asyncio.create_task(asyncio.sleep(0))
    await clock.sleep_s(seconds)
    await clock.sleep_s(seconds)
    assert other.done()


async def test_the_system_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = SystemClock()
    begun_s = clock.now_s()
    await clock.sleep_s(0.002)
    assert clock.now_s() - begun_s >= 0.001
    assert clock.wall_s() > 1_700_000_000
