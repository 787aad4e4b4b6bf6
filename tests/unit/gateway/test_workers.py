"""Worker processes that cannot even be started."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process

from services.gateway.core.restarts import RestartPolicy
from services.gateway.workers import Workers
from shared.runtime.clock import SystemClock


async def test_a_worker_that_cannot_be_started_is_tried_again_and_then_given_up() -> None:
    tries: list[int] = []

    async def start_one(index: int) -> Process:
        tries.append(index)
        raise BlockingIOError("no more processes")

    workers = Workers(1, start_one, SystemClock(), RestartPolicy(first_s=0.0, most_early=2), stop_s=1.0)
    await workers.start()
    async with asyncio.timeout(10):
        await workers.ended.wait()
    await workers.stop()
    assert tries == [0, 0, 0]
    assert workers.failed
