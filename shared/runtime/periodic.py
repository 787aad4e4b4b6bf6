"""Something that a service does again and again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)

Action = Callable[[], Awaitable[None]]


class Periodic:
    """Runs an action at its start and then on a fixed grid of `interval_s`.

    An action that raises is logged and the next turn comes as planned; one that overruns skips the turns
    it missed. `stop` lets an action that is under way finish.
    """

    def __init__(self, clock: Clock, interval_s: float, action: Action) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._action = action
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._sleeping = False

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping = True
        if self._task is None:
            return
        if self._sleeping:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        begun_s = self._clock.now_s()
        turn = 0
        while not self._stopping:
            await self._act()
            passed = math.floor((self._clock.now_s() - begun_s) / self._interval_s)
            turn = max(turn, passed) + 1  # never the same turn twice, even if a sleep ends a hair early
            await self._sleep_until(begun_s + turn * self._interval_s)

    async def _sleep_until(self, at_s: float) -> None:
        if not self._stopping:
            self._sleeping = True
            await self._clock.sleep_s(at_s - self._clock.now_s())
            self._sleeping = False

    async def _act(self) -> None:
        try:
            await self._action()
        except Exception as error:
            _log.exception("a periodic action failed", action=_name(self._action), error=error)


def _name(action: Action) -> str:
    return getattr(action, "__qualname__", repr(action))
