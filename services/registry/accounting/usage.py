"""What was used: single requests, sums of them, and whether the two agree."""

from __future__ import annotations

from services.registry.core.usage import Reconciliation, StoredUsage, TimedWindow, Total, kept_days, timed
from services.registry.io import usage_rows, usage_sums
from services.registry.io.database import Database
from services.registry.io.usage_rows import UsageFilter
from services.registry.io.usage_sums import TotalsFilter, WindowsFilter
from shared.runtime.clock import Clock


class Usage:
    """Everything here may raise DatabaseUnavailable. Times are seconds since 1970."""

    def __init__(self, database: Database, clock: Clock, keep_s: float) -> None:
        self._database = database
        self._clock = clock
        self._keep_s = keep_s

    async def listed(self, wanted: UsageFilter) -> list[StoredUsage]:
        """The newest first."""
        async with self._database.read() as connection:
            return await usage_rows.listed(connection, wanted)

    async def totals(self, wanted: TotalsFilter) -> list[Total]:
        """By name."""
        async with self._database.read() as connection:
            return await usage_sums.totals(connection, wanted)

    async def windows(self, wanted: WindowsFilter) -> list[TimedWindow]:
        """The newest first."""
        async with self._database.read() as connection:
            found = await usage_sums.windows(connection, wanted)
            if not found:
                return []
            since_s, until_s = found[-1].window_start, wanted.before_s
            times = await usage_sums.window_ttfts(connection, wanted.adapter_id, since_s, until_s)
            return timed(found, times)

    def now_s(self) -> float:
        return self._clock.wall_s()

    async def reconcile(self, tenant_id: str) -> Reconciliation:
        """Compare a tenant's sums with its records, day by day, as far back as records of whole days are kept."""
        days = kept_days(self._clock.wall_s(), self._keep_s)
        async with self._database.read() as connection:
            found = [await usage_sums.both(connection, tenant_id, day) for day in days]
        return Reconciliation(tenant_id=tenant_id, from_day=days[0], days=[day for day in found if day.is_used])
