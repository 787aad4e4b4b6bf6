"""Versions that were announced with an alias are deployed once they are active."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry.core.deployment.aliases import Denied
from services.registry.core.deployment.deploying import comes_again
from services.registry.deployment.aliasing import Aliasing
from services.registry.io import wanted_rows
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from shared.runtime.clock import Clock
from shared.runtime.logs import bind, get_logger

_log = get_logger(__name__)


class DeploymentPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`at_once` deployments run at a time. One that no replica could do is tried again after `retry_s`, then twice as
    long, up to `longest_retry_s`, for `deadline_s` in all; then it is left to people."""

    at_once: int = 4
    retry_s: float = 0.5
    longest_retry_s: float = 15.0
    deadline_s: float = 600.0


class Deployments:
    """A part. What is still to be deployed follows from the database, where the next start finds it."""

    def __init__(self, database: Database, aliasing: Aliasing, clock: Clock, policy: DeploymentPolicy) -> None:
        self._database = database
        self._aliasing = aliasing
        self._clock = clock
        self._policy = policy
        self._activated = database.changes.follow_activated()
        self._turns = asyncio.Semaphore(policy.at_once)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._decided: set[str] = set()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Deployments under way are left: the next start takes them up again."""
        tasks = [*self._running.values(), *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Take up what another registry has left, now and then."""
        await self._resume()

    async def _follow(self) -> None:
        """What an earlier run left first, then each adapter as it becomes active."""
        while not await self._resume():
            await self._clock.sleep_s(self._policy.retry_s)
        while True:
            self._begin(await self._activated.get())

    async def _resume(self) -> bool:
        try:
            async with self._database.read() as connection:
                left = await wanted_rows.to_deploy(connection)
        except DatabaseUnavailable as error:
            _log.warning("deployments wait for the database", error=error)
            return False
        except Exception as error:
            _log.exception("deployments cannot be resumed yet", error=error)
            return False
        for adapter_id in left:
            if adapter_id not in self._decided:
                self._begin(adapter_id)
        return True

    def _begin(self, adapter_id: str) -> None:
        if adapter_id not in self._running:
            self._running[adapter_id] = asyncio.create_task(self._attend(adapter_id))

    async def _attend(self, adapter_id: str) -> None:
        bind(adapter_id=adapter_id)
        deadline_s, pause_s = self._clock.now_s() + self._policy.deadline_s, self._policy.retry_s
        try:
            while not await self._ended(adapter_id, deadline_s):
                await self._clock.sleep_s(pause_s)
                pause_s = min(2 * pause_s, self._policy.longest_retry_s)
        finally:
            del self._running[adapter_id]

    async def _ended(self, adapter_id: str, deadline_s: float) -> bool:
        """One attempt; whether there is nothing more to do."""
        try:
            async with self._turns:
                outcome = await self._aliasing.deploy_announced(adapter_id)
        except (DatabaseUnavailable, Collision) as error:
            _log.warning("a deployment waits for the database", error=error)
            return False
        except Exception as error:
            _log.exception("a deployment stumbled", error=error)
            return self._clock.now_s() >= deadline_s
        if comes_again(outcome, deadline_s, self._clock.now_s()):
            return False
        if isinstance(outcome, Denied):
            self._decided.add(adapter_id)
            _log.warning("an announced alias was not set", code=outcome.code, reason=outcome.message)
        return True
