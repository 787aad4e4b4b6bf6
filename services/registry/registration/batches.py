"""Many small changes in one transaction: its commit costs as much for one as for all that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.database import Database, DatabaseUnavailable

_MOST = 100
"""In one transaction: others wait for their turn meanwhile, and a statement takes only so many values."""

A = TypeVar("A")
R = TypeVar("R")


class Batches(Generic[A, R]):
    """`write` is given what has come while others had their turn, and says what became of each, in order.

    One that cannot be written spoils nothing for the others: they are then written one by one.
    """

    def __init__(
        self,
        database: Database,
        write: Callable[[AsyncConnection, Sequence[A]], Awaitable[Sequence[R]]],
        *,
        announce: bool = True,
    ) -> None:
        self._database = database
        self._write = write
        self._announce = announce
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def add(self, one: A) -> R:
        """What became of it, once that is committed. Raises what Database.write and `write` raise; nothing was
        written of it then. A caller that is cancelled does not know."""
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, outcome))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await outcome

    async def stop(self) -> None:
        """What was begun is ended."""
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._write_next()
        finally:
            self._running = None

    async def _write_next(self) -> None:
        batch: list[tuple[A, asyncio.Future[R]]] = []
        try:
            async with self._database.write(announce=self._announce) as connection:
                batch = self._take()
                found = await self._write(connection, [one for one, _ in batch])
        except Exception as error:
            await self._write_singly(batch or self._take(), error)
            return
        for (_, outcome), became in zip(batch, found, strict=True):
            _settle(outcome, became)

    async def _write_singly(self, batch: Sequence[tuple[A, asyncio.Future[R]]], error: Exception) -> None:
        """Unless that is of no use."""
        if isinstance(error, DatabaseUnavailable) or len(batch) == 1:
            for _, outcome in batch:
                _fail(outcome, error)
            return
        for one, outcome in batch:
            try:
                async with self._database.write(announce=self._announce) as connection:
                    [became] = await self._write(connection, [one])
            except Exception as own:
                _fail(outcome, own)
            else:
                _settle(outcome, became)

    def _take(self) -> list[tuple[A, asyncio.Future[R]]]:
        batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        return batch


def _settle(outcome: asyncio.Future[R], became: R) -> None:
    if not outcome.done():
        outcome.set_result(became)


def _fail(outcome: asyncio.Future[R], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
