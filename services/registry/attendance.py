"""Attends to adapters one by one until each has come to an end, however often that takes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.registration.hindrances import Hindrances
from shared.runtime.clock import Clock
from shared.runtime.logs import bind, get_logger

_log = get_logger(__name__)


class AttendancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`at_once` adapters are attended to at a time; a failed attempt is repeated after `retry_s`, then twice
    as long, up to `longest_retry_s`."""

    at_once: int
    retry_s: float
    longest_retry_s: float


class Work(Protocol):
    """What is under way lives in the database: a restart finds it there."""

    name: str
    """What is done, as one word."""

    @property
    def news(self) -> asyncio.Queue[str]:
        """The ids of adapters that need it from now on."""

    async def unfinished(self) -> list[str]:
        """Those that needed it before."""

    async def advance(self, adapter_id: str) -> bool:
        """One attempt; whether the adapter needs no further one. What it raises is tried again."""


class Attendance:
    """A part. Of several registries on one database only one attends to an adapter at a time."""

    def __init__(
        self, work: Work, database: Database, clock: Clock, policy: AttendancePolicy, hindrances: Hindrances
    ) -> None:
        self._work = work
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hindrances = hindrances
        self._turns = asyncio.Semaphore(policy.at_once)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """What is under way is left: the next start takes it up again."""
        tasks = [*self._running.values(), *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look_again(self) -> None:
        """Whatever is unfinished is attended to, also what nobody told of: another registry's, that has died."""
        for adapter_id in await self._work.unfinished():
            self._begin(adapter_id)

    async def _follow(self) -> None:
        """What an earlier run left first, then what comes."""
        while not await self._resume():
            await self._clock.sleep_s(self._policy.retry_s)
        while True:
            self._begin(await self._work.news.get())

    async def _resume(self) -> bool:
        try:
            await self.look_again()
        except DatabaseUnavailable as error:
            _log.warning("what an earlier run left waits for the database", error=error)
            return False
        except Exception as error:
            _log.exception("what an earlier run left cannot be resumed yet", error=error)
            return False
        return True

    def _begin(self, adapter_id: str) -> None:
        if adapter_id not in self._running:
            self._running[adapter_id] = asyncio.create_task(self._attend(adapter_id))

    async def _attend(self, adapter_id: str) -> None:
        bind(adapter_id=adapter_id)
        pause_s = self._policy.retry_s
        try:
            while not await self._advance(adapter_id):
                await self._clock.sleep_s(pause_s)
                pause_s = min(2 * pause_s, self._policy.longest_retry_s)
        finally:
            del self._running[adapter_id]

    async def _advance(self, adapter_id: str) -> bool:
        """Whatever goes wrong here is tried again; a deadline of the work's or of the adapter's ends it."""
        try:
            async with self._turns, self._database.alone(f"{self._work.name} of {adapter_id}") as granted:
                finished = granted and await self._work.advance(adapter_id)
                if finished:
                    self._hindrances.forget(adapter_id)
                return finished
        except (DatabaseUnavailable, Collision) as error:
            self._hindrances.note(adapter_id, str(error))
            _log.warning("an adapter waits for the database", error=error)
        except Exception as error:
            self._hindrances.note(adapter_id, f"{type(error).__name__}: {error}")
            _log.exception("an adapter's progress stumbled", error=error)
        return False
