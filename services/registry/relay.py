"""Tells the bus what the database says: the outbox in order, and now and then everything that must hold."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.registry.core.reconciliation import repair
from services.registry.desired_state import desired_state
from services.registry.io import outbox_rows
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.io.meters import Meters
from services.registry.io.notes import Note, channel_of, message_of
from services.registry.io.outbox_rows import OutboxRow
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.channel import Channel, Kind
from shared.contracts.codec import BadMessage
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class RelayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    retry_s: float
    batch_rows: int
    keep_published_s: float


class Relay:
    """A part that publishes each row of the outbox at least once, in order, and only then marks it.

    One loop does everything, so that a reconciliation never writes a value that a later row replaced.
    """

    def __init__(self, bus: Bus, database: Database, clock: Clock, policy: RelayPolicy, meters: Meters) -> None:
        self._bus = bus
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
            await self._turn()
        except (BusUnavailable, DatabaseUnavailable, Collision) as error:
            _log.warning("the outbox waits", error=error)
        except Exception as error:
            _log.exception("the outbox stumbled", error=error)
        else:
            return True
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
        for row in rows:
            await self._tell_or_drop(row)
            async with self._database.write(announce=False) as connection:
                await outbox_rows.mark_published(connection, row.row_id, self._clock.wall_s())
            self._meters.published()
        return bool(rows)

    async def _tell_or_drop(self, row: OutboxRow) -> None:
        """A row that no bus would take must not hold up those behind it; reconciliation mends a value."""
        try:
            await self._tell(row.note, row.message_id)
        except (BadMessage, KeyError, ValueError, PermissionError) as error:
            _log.error("an outbox row cannot be told", channel=row.note.channel, row_id=row.row_id, error=error)

    async def _tell(self, note: Note, message_id: str) -> None:
        channel, message = channel_of(note), message_of(note)
        if channel.kind is Kind.EVENT:
            await self._bus.publish(channel, message, message_id=message_id)
        elif message is None:
            await self._bus.state(channel).delete(*note.ids)
        else:
            await self._bus.state(channel).put(message, *note.ids)

    async def _reconcile(self) -> None:
        async with self._database.read() as connection:
            wanted = await desired_state(connection)
        for channel, values in wanted:
            await self._repair(channel, values)
        async with self._database.write(announce=False) as connection:
            await outbox_rows.prune(connection, self._clock.wall_s() - self._policy.keep_published_s)

    async def _repair(self, channel: Channel[Any, Any], values: dict[tuple[str, ...], Any]) -> None:
        bucket = self._bus.state(channel)
        found = {change.ids: change.value for change in await bucket.entries()}
        todo = repair(values, found)
        for ids, message in todo.puts:
            await bucket.put(message, *ids)
        for ids in todo.deletes:
            await bucket.delete(*ids)
        if todo.puts or todo.deletes:
            _log.info("a bucket was repaired", channel=channel.name, put=len(todo.puts), deleted=len(todo.deletes))
