from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.runtime.clock import ManualClock
from shared.runtime.periodic import Action
from shared.runtime.service import periodically
from tests.conftest import Within


@asynccontextmanager
async def running(clock: ManualClock, interval_s: float, action: Action) -> AsyncIterator[None]:
    part = periodically(clock, interval_s, action)
    await part.start()
    try:
        yield
    finally:
        await part.stop()


def noting(clock: ManualClock, times: list[float]) -> Action:
    async def note() -> None:
        times.append(clock.now_s())

    return note


async def test_the_first_turn_comes_at_once_and_the_others_on_a_grid() -> None:
    clock, times = ManualClock(), list[float]()
    async with running(clock, 1.0, noting(clock, times)):
        await clock.advance(0.0)
        assert times == [0.0]
        await clock.advance(3.5)
        assert times == [0.0, 1.0, 2.0, 3.0]


async def test_a_grid_of_tenths_neither_drifts_nor_takes_a_turn_twice() -> None:
    clock, times = ManualClock(start_s=0.7), list[float]()
    async with running(clock, 0.1, noting(clock, times)):
        for _ in range(100):
            await clock.advance(0.1)
    assert len(times) in (100, 101)
    assert times[-1] == pytest.approx(0.7 + 0.1 * (len(times) - 1))
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.09


async def test_an_exception_costs_one_turn_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, turns = ManualClock(), list[float]()

    async def fail_once() -> None:
        turns.append(clock.now_s())
        if len(turns) == 2:
            raise RuntimeError("the bus is away")

    async with running(clock, 1.0, fail_once):
        await clock.advance(4.0)
    assert turns == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert caplog.messages == ["a periodic action failed"]
    assert "the bus is away" in caplog.text


async def test_an_action_that_overruns_skips_the_turns_it_missed() -> None:
    clock, times = ManualClock(), list[float]()

    async def overrun() -> None:
        times.append(clock.now_s())
        if len(times) == 1:
            await clock.sleep_s(2.5)

    async with running(clock, 1.0, overrun):
        await clock.advance(4.0)
    assert times == [0.0, 3.0, 4.0]


async def test_stop_lets_an_action_finish_and_starts_no_other(within: Within) -> None:
    clock, finished = ManualClock(), list[float]()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def action() -> None:
        begun.set()
        await may_end.wait()
        finished.append(clock.now_s())

    part = periodically(clock, 1.0, action)
    async with within(5):
        await part.start()
        await begun.wait()
        stopping = asyncio.create_task(part.stop())
        await clock.advance(5.0)
        assert not stopping.done()
        may_end.set()
        await stopping
    await clock.advance(5.0)
    assert finished == [5.0]


async def test_stop_does_not_wait_for_the_next_turn(within: Within) -> None:
    clock, times = ManualClock(), list[float]()
    part = periodically(clock, 3600.0, noting(clock, times))
    async with within(5):
        await part.start()
        await clock.advance(1.0)
        await part.stop()
    assert times == [0.0]


async def test_what_never_started_can_be_stopped() -> None:
    clock = ManualClock()
    await periodically(clock, 1.0, noting(clock, [])).stop()
