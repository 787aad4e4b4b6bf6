"""What the autoscaler writes on the bus while it leads: wishes, and its own orders to drain."""

from __future__ import annotations

from collections.abc import Mapping

from services.autoscaler.io.heard import OURS
from shared.bus.port import Bus, RevisionConflict
from shared.contracts.catalog import DAY_SHAPE, DRAIN, FLEET_METRICS
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger, NotLeading
from shared.messages.desired import DrainOrder, PoolDayShape, ScaleWish
from shared.messages.reports import FleetMetrics


class Desk:
    """Every coroutine may raise BusUnavailable; what was written until then stands, and doing it again is safe. Those
    that write raise NotLeading without the lease, and nothing was written."""

    def __init__(self, bus: Bus, leader: Leader, wishes: Ledger[ScaleWish]) -> None:
        self.leader = leader
        self._bus = bus
        self._wishes = wishes
        self._drains = bus.state(DRAIN)
        self._shapes = bus.state(DAY_SHAPE)

    @property
    def connected(self) -> bool:
        return self._bus.connected

    @property
    def wishes(self) -> Mapping[str, ScaleWish]:
        """As they are on the bus, as far as we know."""
        return {ids[0]: wish for ids, wish in self._wishes.values.items()}

    async def read(self) -> None:
        """Take up the wishes on record, and never lead with a lower epoch than theirs."""
        await self._wishes.read()
        self.leader.heed(self._wishes.newest_epoch)

    async def wish(self, wish: ScaleWish) -> bool:
        """Make it the one on record; whether it wishes for anything new. A reason alone is not written: it changes
        with every look, and the metrics carry it. Raises Superseded."""
        kept = self._wishes.values.get((wish.pool_id,))
        is_new = kept is None or (kept.desired, kept.drain) != (wish.desired, wish.drain)
        if is_new or (kept is not None and kept.epoch != wish.epoch):
            await self._wishes.write(wish, wish.pool_id)
        return is_new

    async def end_wish(self, pool_id: str, epoch: int) -> None:
        """Nothing is wished for this pool any more. Raises Superseded."""
        await self._wishes.remove(epoch, pool_id)

    async def drain(self, replica_id: str, reason: str, epoch: int) -> bool:
        """Order one replica to drain, unless somebody has done so already; whether it was we. It stays until the
        actuator removes it: one that ended by itself could not be taken back, and would be started again by whoever
        keeps it alive."""
        order = DrainOrder(replica_id=replica_id, reason=OURS + reason, epoch=epoch, then_stop=False)
        self._require_leading(epoch)
        try:
            await self._drains.put(order, replica_id, expected_revision=0)
        except RevisionConflict:
            return False
        return True

    async def end_drain(self, replica_id: str, epoch: int) -> bool:
        """Take our order back. One that a person wrote meanwhile stays; whether ours is gone."""
        kept = await self._drains.get(replica_id)
        if kept is None or kept.value is None or not kept.value.reason.startswith(OURS):
            return False
        self._require_leading(epoch)
        try:
            await self._drains.delete(replica_id, expected_revision=kept.revision)
        except RevisionConflict:
            return False
        return True

    async def shapes(self) -> dict[str, PoolDayShape]:
        """The shapes of the day that whoever led before has kept, by pool."""
        entries = await self._shapes.entries()
        return {entry.ids[0]: entry.value for entry in entries if entry.value is not None}

    async def keep_shape(self, shape: PoolDayShape, epoch: int) -> None:
        """Write it over the last one, whosever that is: it is a memory, and nothing is done by order of it."""
        self._require_leading(epoch)
        await self._shapes.put(shape, shape.pool_id)

    async def end_shape(self, pool_id: str, epoch: int) -> None:
        self._require_leading(epoch)
        await self._shapes.delete(pool_id)

    async def publish(self, fleet: FleetMetrics, epoch: int) -> None:
        self._require_leading(epoch)
        await self._bus.publish(FLEET_METRICS, fleet)

    def _require_leading(self, epoch: int) -> None:
        if not self.leader.may_act(epoch):
            raise NotLeading(f"the lease is not ours with epoch {epoch} now, so nothing is written")
