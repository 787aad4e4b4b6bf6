"""Several gateways behind one port: each a process and a gateway of its own on the bus; one that dies is replaced."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable

from services.gateway.core.restarts import RestartPolicy, after_end
from services.gateway.io.worker_program import stop_worker
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Workers:
    """A part. `start_one` starts the worker of a place. When a place is given up, `failed` is true and `ended` set:
    whoever waits for it stops the others, which finish their streams."""

    def __init__(
        self, count: int, start_one: Callable[[int], Awaitable[Process]], clock: Clock, policy: RestartPolicy,
        stop_s: float,
    ) -> None:  # fmt: skip
        self._count = count
        self._start_one = start_one
        self._clock = clock
        self._policy = policy
        self._stop_s = stop_s
        self._running: dict[int, Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.failed = False
        self.ended = asyncio.Event()

    async def start(self) -> None:
        self._keepers = [asyncio.create_task(self._keep(index)) for index in range(self._count)]

    async def stop(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(stop_worker(process, self._stop_s) for process in self._running.values()))

    async def _keep(self, index: int) -> None:
        """A worker at this place, for as long as that helps."""
        early = 0
        while True:
            began_s = self._clock.now_s()
            code = await self._run_one(index)
            restart = after_end(early, self._clock.now_s() - began_s, self._policy)
            if restart.pause_s is None:
                _log.error("a worker ends again and again, and the others are stopped", worker=index, code=code)
                self.failed = True
                self.ended.set()
                return
            early = restart.early
            _log.warning("a worker ended and is started again", worker=index, code=code, in_s=restart.pause_s)
            await self._clock.sleep_s(restart.pause_s)

    async def _run_one(self, index: int) -> int | None:
        """How it ended; None if it did not even begin."""
        try:
            process = self._running[index] = await self._start_one(index)
        except OSError as error:
            _log.error("a worker cannot be started", worker=index, error=error)
            return None
        _log.info("a worker was started", worker=index, pid=process.pid)
        return await process.wait()
