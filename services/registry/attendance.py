"""Attends to adapters one by one until each has come to an end, however often that takes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from services.registry.core.turns import Entrant
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.registration.hindrances import Hindrances
from services.registry.turns import Turns
from shared.runtime.clock import Clock
from shared.runtime.logs import bind, get_logger

_log = get_logger(__name__)


class AttendancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt is repeated after `retry_s`, then twice as long, up to `longest_retry_s`."""

    retry_s: float
    longest_retry_s: float


class Work(Protocol):
    """What is under way lives in the database: a restart finds it there."""

    name: str
    """What is done, as one word."""
    gives_way: bool
    """Whether a batch of registrations goes first."""

    @property
    def news(self) -> asyncio.Queue[Entrant]:
        """Adapters that need it from now on."""

    async def unfinished(self) -> list[Entrant]:
        """Those that needed it before."""

    async def advance(self, adapter_id: str) -> bool:
        """One attempt; whether the adapter needs no further one. What it raises is tried again."""


class Means(msgspec.Struct, frozen=True):
    """What it takes to attend to anything."""

    database: Database
    clock: Clock
    hindrances: Hindrances


class Attendance:
    """A part. Of several registries on one database only one attends to an adapter at a time."""

    def __init__(self, work: Work, turns: Turns, policy: AttendancePolicy, means: Means) -> None:
        self._work = work
        self._turns = turns
        self._policy = policy
        self._database = means.database
        self._clock = means.clock
        self._hindrances = means.hindrances
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """What is under way is left: the next start takes it up again."""
        self._turns.stop()
        tasks = [*self._running.values(), *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look_again(self) -> None:
        """Whatever is unfinished is attended to, also what nobody told of: another registry's, that has died."""
        for entrant in await self._work.unfinished():
            self._begin(entrant)

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

    def _begin(self, entrant: Entrant) -> None:
        if entrant.adapter_id not in self._running:
            self._running[entrant.adapter_id] = asyncio.create_task(self._attend(entrant))

    async def _attend(self, entrant: Entrant) -> None:
        bind(adapter_id=entrant.adapter_id)
        pause_s = self._policy.retry_s
        try:
            while not await self._advance(entrant):
                entrant = msgspec.structs.replace(entrant, begun=True)
                await self._clock.sleep_s(pause_s)
                pause_s = min(2 * pause_s, self._policy.longest_retry_s)
        finally:
            del self._running[entrant.adapter_id]

    async def _advance(self, entrant: Entrant) -> bool:
        """Whatever goes wrong here is tried again; a deadline of the work's or of the adapter's ends it."""
        adapter_id = entrant.adapter_id
        try:
            async with self._turns.turn(entrant), self._database.alone(f"{self._work.name} of {adapter_id}") as granted:
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
