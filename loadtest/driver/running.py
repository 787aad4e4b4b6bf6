"""The open loop: a request leaves when it is due, however slow the fleet is, and nobody waits for an answer."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from loadtest.driver.answer import CUT_OFF, OK, Answer
from loadtest.driver.asking import Target, Wording, Writer, address_of
from loadtest.driver.connection import Connection
from loadtest.driver.planned import Planned
from loadtest.driver.pool import Pool
from loadtest.driver.seen import STOPPED, Collected, Seen
from loadtest.driver.timer import open_timer

TIMEOUT = "timeout"
NO_CONNECTION = "no connection"
_AT_ONCE = 64
"""Requests that may leave one after the other before answers are read again."""
_LOOK_S = 1.0

Content = Callable[[str, Answer], str]
"""Of an alias and its answer: in a word whose marker it carries."""


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
        self._asked: set[_Asked] = set()
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

    def ended(self, asked: _Asked, seen: Seen) -> None:
        """An _Asked tells this once."""
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
        asked = _Asked(self, planned, self._writer.written(planned, self._number))
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


class _Asked:
    """A request from the moment when it is due to the end of its answer."""

    __slots__ = ("_again", "_connection", "_driver", "_request", "_sent_s", "_why", "answer", "planned")

    def __init__(self, driver: Driver, planned: Planned, request: bytes) -> None:
        self.planned = planned
        self.answer = Answer(keep_text=driver.content is not None)
        self._driver = driver
        self._request = request
        self._connection: Connection | None = None
        self._sent_s: float | None = None
        self._again = False
        self._why = ""

    def given(self, connection: Connection) -> None:
        self._connection = connection
        self._sent_s = self._sent_s or time.monotonic()
        connection.ask(self._request, self.answer, self.ended)

    def denied(self, reason: str) -> None:
        self._tell(NO_CONNECTION, reason)

    def give_up(self, why: str) -> None:
        self._why = why
        if self._connection is None:
            self._driver.pool.drop(self)
            self._tell(why, "")
        else:
            self._connection.close()

    def ended(self, outcome: str, reason: str) -> None:
        """A connection that the server closes just as it is used again says nothing about the request: once more."""
        kept = self._connection is not None and self._connection.answers > 0
        self._connection = None
        if self._why:
            self._tell(self._why, "")
        elif outcome == CUT_OFF and kept and not self.answer.begun and not self._again:
            self._again = True
            self._driver.pool.want_fresh(self)
        else:
            self._tell(outcome, reason)

    def _tell(self, outcome: str, reason: str) -> None:
        began_s, now_s, answer = self._driver.began_s, time.monotonic(), self.answer
        due_s, times_s = began_s + self.planned.at_s, answer.events.times_s
        tokens = answer.usage.completion_tokens or answer.events.pieces
        look = self._driver.content if outcome == OK else None
        seen = Seen(
            at_s=self.planned.at_s,
            alias=self.planned.alias,
            outcome=outcome,
            reason=reason,
            tier=answer.header("x-adapter-tier"),
            delay_s=(self._sent_s or now_s) - due_s,
            ttft_s=times_s[0] - due_s if times_s else None,
            tpot_s=(times_s[-1] - times_s[0]) / (tokens - 1) if times_s and tokens > 1 else None,
            e2el_s=now_s - due_s,
            prompt_tokens=answer.usage.prompt_tokens,
            tokens=tokens,
            content=look(self.planned.alias, answer) if look is not None else "",
        )
        self._driver.ended(self, seen)


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
