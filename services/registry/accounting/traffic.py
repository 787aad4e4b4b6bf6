"""Tells placement which adapters are busy."""

from __future__ import annotations

from services.registry.core.traffic import news, pool_traffic
from services.registry.core.usage import WINDOW_S, window_of
from services.registry.io import usage_rows
from services.registry.io.database import Database, DatabaseUnavailable
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.catalog import TRAFFIC
from shared.messages.usage import PoolTraffic
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

TELL_S = 10.0
SPAN_S = 10 * WINDOW_S
"""Long enough for two digits of a rate to mean something, short enough to follow a day's turns."""

_log = get_logger(__name__)


class Traffic:
    """`tell` is to be called now and then; what it cannot say or learn now it says the next time."""

    def __init__(self, bus: Bus, database: Database, clock: Clock) -> None:
        self._bus = bus
        self._database = database
        self._clock = clock
        self._told: dict[str, PoolTraffic] | None = None

    async def tell(self) -> None:
        """The rates of each pool, if they are others than those on record."""
        now_s = self._clock.wall_s()
        since_s = window_of(now_s - SPAN_S)
        try:
            async with self._database.read() as connection:
                counted = await usage_rows.counted(connection, since_s)
            await self._publish(pool_traffic(counted, max(now_s - since_s, 1.0), now_s))
        except (BusUnavailable, DatabaseUnavailable) as error:
            _log.warning("placement is not told what is busy", error=error)

    async def _publish(self, found: list[PoolTraffic]) -> None:
        bucket = self._bus.state(TRAFFIC)
        if self._told is None:
            self._told = {change.ids[0]: change.value for change in await bucket.entries() if change.value is not None}
        for one in news(found, self._told):
            await bucket.put(one, one.pool_id)
            self._told[one.pool_id] = one
