"""What the autoscaler writes on the bus: wishes, and its own orders to drain."""

from __future__ import annotations

from collections.abc import Mapping

from services.autoscaler.io.heard import OURS
from shared.bus.port import Bus, RevisionConflict
from shared.contracts.catalog import DRAIN, FLEET_METRICS, SCALE_WISH
from shared.messages.desired import DrainOrder, ScaleWish
from shared.messages.reports import FleetMetrics


class Desk:
    """Every coroutine may raise BusUnavailable; what was written until then stands, and doing it again is safe."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._wishes = bus.state(SCALE_WISH)
        self._drains = bus.state(DRAIN)
        self._kept: dict[str, ScaleWish] = {}

    @property
    def connected(self) -> bool:
        return self._bus.connected

    @property
    def wishes(self) -> Mapping[str, ScaleWish]:
        """As they are on the bus, as far as we know."""
        return self._kept

    async def read(self) -> None:
        """Take up the wishes on record."""
        entries = await self._wishes.entries()
        self._kept = {entry.value.pool_id: entry.value for entry in entries if entry.value is not None}

    async def wish(self, wish: ScaleWish) -> bool:
        """Make it the one on record; whether it says anything new. A reason alone is not written: it changes with
        every look, and the metrics carry it."""
        kept = self._kept.get(wish.pool_id)
        if kept is not None and (kept.desired, kept.drain) == (wish.desired, wish.drain):
            return False
        await self._wishes.put(wish, wish.pool_id)
        self._kept[wish.pool_id] = wish
        return True

    async def drain(self, replica_id: str, reason: str, epoch: int) -> bool:
        """Order one replica to drain, unless somebody has done so already; whether it was we."""
        order = DrainOrder(replica_id=replica_id, reason=OURS + reason, epoch=epoch)
        try:
            await self._drains.put(order, replica_id, expected_revision=0)
        except RevisionConflict:
            return False
        return True

    async def end_drain(self, replica_id: str) -> bool:
        """Take our order back. One that a person wrote meanwhile stays; whether ours is gone."""
        kept = await self._drains.get(replica_id)
        if kept is None or kept.value is None or not kept.value.reason.startswith(OURS):
            return False
        await self._drains.delete(replica_id)
        return True

    async def publish(self, fleet: FleetMetrics) -> None:
        await self._bus.publish(FLEET_METRICS, fleet)
