"""Takes what gateways recorded into the database, once each, and forgets it when its time is over."""

from __future__ import annotations

import msgspec

from services.registry.io import usage_ledger
from services.registry.io.database import Database, DatabaseUnavailable, Unstorable
from services.registry.io.meters import Meters
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts import catalog
from shared.contracts.channel import Service
from shared.messages.usage import UsageBatch, UsageRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

PRUNE_S = 60.0
PRUNED_AT_ONCE = 5_000
"""Rows that one transaction forgets: writers wait no longer than for these."""

_log = get_logger(__name__)


class UsageIntake:
    """A part that takes batches through a durable consumer: each is acknowledged once it is committed, so one whose
    registry or database goes away meanwhile comes again, and adds only what is missing."""

    def __init__(self, bus: Bus, database: Database, clock: Clock, meters: Meters, keep_s: float) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock
        self._meters = meters
        self._keep_s = keep_s
        self._open: Subscription | None = None

    async def start(self) -> None:
        self._open = await self._bus.consume(catalog.USAGE_RECORDED, Service.REGISTRY.value, self._on_batch)

    async def stop(self) -> None:
        if self._open is not None:
            await self._open.close()

    async def prune(self) -> None:
        """Forget records and windows that are older than they are kept, a chunk at a time."""
        before_s = self._clock.wall_s() - self._keep_s
        try:
            while await self._prune_records(before_s) == PRUNED_AT_ONCE:
                pass
            while await self._prune_window(before_s):
                pass
        except DatabaseUnavailable as error:
            _log.warning("old usage is not forgotten yet", error=error)

    async def _on_batch(self, batch: UsageBatch, ids: Ids) -> None:
        """What it raises (a database that is away) brings the same batch again."""
        try:
            new = await self._enter(batch)
        except Unstorable:
            new = sum([await self._enter_or_drop(batch, record) for record in batch.records])
        self._meters.usage(new, len(batch.records) - new)

    async def _enter(self, batch: UsageBatch) -> int:
        async with self._database.write(announce=False) as connection:
            return await usage_ledger.enter(connection, batch)

    async def _enter_or_drop(self, batch: UsageBatch, record: UsageRecord) -> int:
        """A record that no database takes must not cost those that came with it."""
        try:
            return await self._enter(msgspec.structs.replace(batch, records=(record,)))
        except Unstorable as error:
            _log.error("a usage record cannot be kept", call_id=record.call_id, error=error)
            return 0

    async def _prune_records(self, before_s: float) -> int:
        async with self._database.write(announce=False) as connection:
            return await usage_ledger.prune(connection, before_s, PRUNED_AT_ONCE)

    async def _prune_window(self, before_s: float) -> int:
        async with self._database.write(announce=False) as connection:
            return await usage_ledger.prune_window(connection, before_s)
