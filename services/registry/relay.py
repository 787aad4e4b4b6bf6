"""Tells the bus what the database says: the outbox in order, and now and then everything that must hold."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry.desired_state import desired_state
from services.registry.io import outbox_rows
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.io.meters import Meters
from services.registry.telling import Teller
from shared.bus.port import Bus, BusUnavailable
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class RelayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    retry_s: float
    batch_rows: int
    keep_published_s: float


class Relay:
    """A part that publishes each row of the outbox at least once, in order, and only then marks it.

    One loop does everything, so that a reconciliation never writes a value that a later row replaced; of several
    registries on one database, one at a time does.
    """

    def __init__(self, bus: Bus, database: Database, clock: Clock, policy: RelayPolicy, meters: Meters) -> None:
        self._teller = Teller(bus, policy.batch_rows)
        self._database = database
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._changed = database.changes.follow_commits()
        self._reconcile_asked = True
        self._reconciled = False
        self._loop: asyncio.Task[None] | None = None

    def unready_reason(self) -> str | None:
        return None if self._reconciled else "the bus has not been told the present state yet"

    async def ask_reconcile(self) -> None:
        """Compare every bucket with the database soon, and repair what differs."""
        self._reconcile_asked = True
        self._changed.set()

    async def look(self) -> None:
        """Tell soon what another registry committed and did not live to tell."""
        self._changed.set()

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """What has not been told yet is told by the next start."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if await self._turn_safely():
                await self._changed.wait()
            else:
                await self._clock.sleep_s(self._policy.retry_s)

    async def _turn_safely(self) -> bool:
        """Whether the bus knows everything now."""
        try:
            async with self._database.alone("relay") as granted:
                if granted:
                    await self._turn()
                return granted
        except (BusUnavailable, DatabaseUnavailable, Collision) as error:
            _log.warning("the outbox waits", error=error)
        except Exception as error:
            _log.exception("the outbox stumbled", error=error)
        return False

    async def _turn(self) -> None:
        while await self._publish_batch():
            pass
        if self._reconcile_asked:
            await self._reconcile()
            self._reconcile_asked = False
            self._reconciled = True

    async def _publish_batch(self) -> bool:
        """Whether there may be more."""
        async with self._database.read() as connection:
            rows = await outbox_rows.pending(connection, self._policy.batch_rows)
            self._meters.backlog(await outbox_rows.backlog(connection))
        told = await self._teller.tell(rows)
        if told.count:
            async with self._database.write(announce=False) as connection:
                published = [row.row_id for row in rows[: told.count]]
                await outbox_rows.mark_published(connection, published, self._clock.wall_s())
            self._meters.published(told.count)
        if told.trouble is not None:
            raise told.trouble
        return bool(rows)

    async def _reconcile(self) -> None:
        async with self._database.read() as connection:
            wanted = await desired_state(connection)
        for channel, values in wanted:
            await self._teller.repair(channel, values)
        async with self._database.write(announce=False) as connection:
            await outbox_rows.prune(connection, self._clock.wall_s() - self._policy.keep_published_s)
