"""An event loop whose time is virtual: when nothing can run, it is at once as late as the next thing that is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class _VirtualSelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Passes time on instead of sleeping, unless a thread is about to deliver something: threads take no time."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.in_threads:
            return super().select(None)
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is due")
        self.loop.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now_s = 0.0
        self.in_threads = 0
        selector = _VirtualSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        self.in_threads += 1
        work = super().run_in_executor(executor, func, *args)
        work.add_done_callback(self._landed)
        return work

    async def shutdown_default_executor(self) -> None:
        self.in_threads += 1  # it waits for them in a thread of its own
        await super().shutdown_default_executor()

    def _landed(self, work: asyncio.Future[Any]) -> None:
        self.in_threads -= 1


class LoopClock:
    """The running loop's time, as a Clock."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_s(self) -> float:
        return self.now_s()

    async def sleep_s(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run_virtually(work: Coroutine[Any, Any, R]) -> R:
    """Hours in seconds."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
