"""Ends what has waited for too long."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.io import adapter_rows, outbox_rows
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.registration.hindrances import Hindrances
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_AT_ONCE = 200
_NO_RESULTS = "its pipeline has posted no results"
_log = get_logger(__name__)


class Deadlines:
    """Waiting in line is nobody's fault: who is verified and has not had its turn goes on waiting, `evaluation_s` at a
    time, as long as somebody else's turn comes meanwhile."""

    def __init__(
        self, database: Database, clock: Clock, hindrances: Hindrances, meters: Meters, evaluation_s: float
    ) -> None:
        self._database = database
        self._clock = clock
        self._hindrances = hindrances
        self._meters = meters
        self._evaluation_s = evaluation_s

    async def sweep(self) -> None:
        """Every adapter whose deadline has passed is failed, with what stood in its way last.
        Raises DatabaseUnavailable: the next sweep goes on."""
        async with self._database.read() as connection:
            due = await adapter_rows.overdue(connection, lifecycle.UNDER_WAY, self._clock.wall_s(), _AT_ONCE)
        for adapter_id in due:
            await self._expire(adapter_id)

    async def _expire(self, adapter_id: str) -> None:
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None or adapter.status not in lifecycle.UNDER_WAY or (adapter.deadline_s or now_s) > now_s:
                return
            if adapter.status == "verified" and await self._line_moves(connection, now_s):
                waiting = msgspec.structs.replace(adapter, deadline_s=now_s + self._evaluation_s)
                await adapter_rows.save(connection, waiting, [])
                return
            hindrance = _NO_RESULTS if records.awaits_results(adapter) else self._hindrances.last(adapter_id)
            step = lifecycle.expire(adapter.status, hindrance, now_s)
            failed = records.after_move(adapter, step)
            await adapter_rows.save(connection, failed, [step])
            await outbox_rows.append(connection, facts.failed(failed), now_s)
        self._hindrances.forget(adapter_id)
        self._meters.expired(adapter.status)
        _log.warning("a deadline has passed", adapter_id=adapter_id, state=adapter.status, reason=step.reason)

    async def _line_moves(self, connection: AsyncConnection, now_s: float) -> bool:
        began_s = await adapter_rows.newest_move(connection, "evaluating")
        return began_s is not None and began_s > now_s - self._evaluation_s
