"""The open loop: a request leaves when it is due, however slow the fleet is, and nobody waits for an answer."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from loadtest.driver.asking import Target, Wording, Writer, address_of
from loadtest.driver.planned import Planned
from loadtest.driver.pool import Pool
from loadtest.driver.request import TIMEOUT, Content, Request
from loadtest.driver.seen import STOPPED, Collected, Seen
from loadtest.driver.timer import open_timer

_AT_ONCE = 64
"""Requests that may leave one after the other before answers are read again."""
_LOOK_S = 1.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`most_streams` at once: whoever is due beyond them waits, and its times go on meanwhile. An answer has
    `timeout_s` from the moment when its request was due."""

    most_streams: int = 4_096
    timeout_s: float = 120.0
    warm_up_s: float = 0.0


async def drive(
    target: Target,
    load: Iterable[Planned],
    limits: Limits | None = None,
    wording: Wording | None = None,
    content: Content | None = None,
) -> Collected:
    """All of `load`, in order of time. Raises ValueError for an address that is none."""
    driver = Driver(target, limits or Limits(), wording or Wording(), content)
    return await driver.run(load)


class Driver:
    """One run. `content` looks at what was said; without it nothing of it is kept."""

    def __init__(
        self, target: Target, limits: Limits, wording: Wording | None = None, content: Content | None = None
    ) -> None:
        self.limits = limits
        self.content = content
        self.collected = Collected(limits.warm_up_s)
        self.pool = Pool(address_of(target.url), limits.most_streams)
        self._writer = Writer(target, wording or Wording())
        self._load: Iterator[Planned] = iter(())
        self._next: Planned | None = None
        self._asked: set[Request] = set()
        self._number = 0
        self._over = asyncio.Event()
        self.began_s = 0.0
        self.stopped = False

    async def run(self, load: Iterable[Planned]) -> Collected:
        """Ends when the last answer has, or soon after `stop`."""
        loop = asyncio.get_running_loop()
        self._load = iter(load)
        self._next = next(self._load, None)
        self._timer = open_timer(loop, self._send_due)
        watching = loop.create_task(self._watch())
        try:
            with _undisturbed():
                self.began_s = time.monotonic()
                self._arm()
                await self._over.wait()
        finally:
            watching.cancel()
            self._timer.close()
            await self.pool.close()
        return self.collected

    def stop(self) -> None:
        """Nothing more is sent, and what is under way is given up."""
        self.stopped, self._next = True, None
        for asked in list(self._asked):
            asked.give_up(STOPPED)
        self._arm()

    def ended(self, asked: Request, seen: Seen) -> None:
        """An Request tells this once."""
        self._asked.discard(asked)
        self.collected.add(seen, asked.answer.events.times_s, asked.answer.events.pieces)
        if self._next is None and not self._asked:
            self._over.set()

    def _arm(self) -> None:
        if self._next is not None:
            self._timer.set(self.began_s + self._next.at_s)
        elif not self._asked:
            self._over.set()

    def _send_due(self) -> None:
        for _ in range(_AT_ONCE):
            if self._next is None or self.began_s + self._next.at_s > time.monotonic():
                break
            self._send(self._next)
            self._next = next(self._load, None)
        self._arm()

    def _send(self, planned: Planned) -> None:
        asked = Request(self, planned, self._writer.written(planned, self._number))
        self._number += 1
        self._asked.add(asked)
        self.collected.most_streams = max(self.collected.most_streams, len(self._asked))
        self.pool.want(asked)

    async def _watch(self) -> None:
        """One look at all of them now and then is cheaper than an alarm for each."""
        while True:
            await asyncio.sleep(min(_LOOK_S, self.limits.timeout_s / 4))
            late_s = time.monotonic() - self.began_s - self.limits.timeout_s
            for asked in [one for one in self._asked if one.planned.at_s < late_s]:
                asked.give_up(TIMEOUT)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """The collector looks rarely, and only at what came during the run: its pauses would be the fleet's."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    if not frozen:
        gc.freeze()
    gc.set_threshold(200_000, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
