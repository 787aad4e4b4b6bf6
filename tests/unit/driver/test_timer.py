"""Alarm clocks ring once, not too early, and at once for a moment that has passed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from loadtest.driver import timer
from loadtest.driver.timer import ExactTimer, LoopTimer, Timer, open_timer

Kind = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Timer]


@pytest.mark.parametrize("kind", [ExactTimer, LoopTimer])
async def test_it_rings_once_for_the_last_moment_that_was_set(kind: Kind) -> None:
    rung: asyncio.Queue[float] = asyncio.Queue()
    clock = kind(asyncio.get_running_loop(), lambda: rung.put_nowait(time.monotonic()))
    try:
        clock.set(time.monotonic() + 3_600.0)
        due_s = time.monotonic() + 0.02
        clock.set(due_s)
        async with asyncio.timeout(10):
            assert await rung.get() >= due_s - 0.001
            clock.set(due_s - 5.0)
            await rung.get()
        assert rung.empty()
    finally:
        clock.close()


async def test_where_there_is_no_exact_one_the_loops_own_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise AttributeError("timerfd_create")

    loop = asyncio.get_running_loop()
    exact = open_timer(loop, lambda: None)
    exact.close()
    assert isinstance(exact, ExactTimer)
    monkeypatch.setattr(timer, "ExactTimer", nothing)
    assert isinstance(open_timer(loop, lambda: None), LoopTimer)
