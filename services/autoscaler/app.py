"""The autoscaler: folds what everybody reports, decides once a second, and says how the fleet is.

What is decided goes on the bus (a wish for each pool, an order to drain for each replica that is to go) and to the
actuator, again and again: nothing depends on one message or one call having come through.

Of several autoscalers the one that holds the lease does so. The others listen, and take up its wishes when they take
over.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.autoscaler.core.fleet import decide_all
from services.autoscaler.core.fold import live_gateways, silent_replicas
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory, remembered
from services.autoscaler.core.metrics import fleet_metrics, pool_metrics, with_customers
from services.autoscaler.io.desk import Desk
from services.autoscaler.io.meters import Meters
from services.autoscaler.lookout import AutoscalerPolicy, Lookout
from services.autoscaler.shapes import ShapeKeeper
from shared.bus.port import BusUnavailable
from shared.leadership.ledger import NotLeading, Superseded
from shared.messages.desired import ScaleWish
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

TURN_S = 1.0

_log = get_logger(__name__)


class Autoscaler:
    """A part of a service; `turn` is to be called every TURN_S, never twice at a time."""

    def __init__(
        self, clock: Clock, policy: AutoscalerPolicy, lookout: Lookout, desk: Desk, meters: Meters
    ) -> None:  # fmt: skip
        self._clock = clock
        self._policy = policy
        self._lookout = lookout
        self._heard = lookout.heard
        self._carrier = lookout.carrier
        self._desk = desk
        self._meters = meters
        self._shapes = ShapeKeeper(clock, policy.scale.floor, desk)
        self._memories: dict[str, PoolMemory] = {}
        self._filled_at_s: float | None = None
        self._has_looked = False
        self._sequence = 0
        self._epoch = 0
        """Of the lease under which this autoscaler acts; 0: it stands by."""

    async def start(self) -> None:
        """Listen, and contend for the lease. Raises BusUnavailable; nothing was written then, and nothing is left
        running."""
        try:
            await self._heard.start()
            await self._desk.read()
        except BaseException:
            await self.stop()
            raise
        self._filled_at_s = self._clock.now_s() + self._policy.fill_s
        self._desk.leader.contend()

    async def stop(self) -> None:
        await self._heard.stop()

    def unready_reason(self) -> str | None:
        """For the probe: None while this autoscaler acts or could."""
        if not self._desk.connected:
            return "the bus cannot be reached"
        return None if self._has_looked else "its view of the fleet has not filled yet"

    def status(self) -> str:
        """For the probe, once it is ready."""
        return f"leads with epoch {self._epoch}" if self._desk.leader.may_act(self._epoch) else "stands by"

    async def turn(self) -> None:
        """Look, decide, say so. A silent replica is waited for by nobody."""
        now_s, standing = self._clock.now_s(), self._desk.leader.standing
        if not standing.leads:
            self._meters.leads(0)
        if not self._desk.connected:
            # Whoever hears nothing knows nothing; on return, everybody is given the time to be heard again.
            self._filled_at_s = now_s + self._policy.fill_s
        if self._filled_at_s is None or now_s < self._filled_at_s:
            return
        self._has_looked = True
        try:
            await self._follow(standing.epoch if standing.leads else 0)
            if self._epoch:
                await self._decide(now_s)
        except (BusUnavailable, NotLeading) as error:
            _log.warning("not everything could be sent; the next turn does it", error=error)
        except Superseded as error:
            self._desk.leader.heed(error.epoch + 1)
            _log.warning("somebody else has wished; this autoscaler goes on with a higher epoch, or not", error=error)

    async def _follow(self, epoch: int) -> None:
        """Begin to act with the epoch of the lease, or step back. The wishes and drains on record are taken up."""
        if epoch == self._epoch:
            return
        self._epoch = 0
        if epoch:
            await self._desk.read()
            self._recall()
            self._memories = await self._shapes.recall(self._memories)
        self._epoch = epoch

    async def _decide(self, now_s: float) -> None:
        pools = await self._lookout.loads(self._memories)
        decisions = decide_all(self._memories, pools, now_s, self._policy.scale, self._policy.cost)
        self._tell_failed_starts(decisions)
        self._memories |= {pool_id: decision.memory for pool_id, decision in decisions.items()}
        self._meters.leads(self._epoch)
        await self._publish(pools, decisions, now_s)
        await self._act(decisions)
        for pool_id in self._lookout.over(pools):
            await self._forget(pool_id)
        await self._shapes.keep(self._memories, self._epoch)

    def _tell_failed_starts(self, decisions: Mapping[str, PoolDecision]) -> None:
        """The wish stays the same, so nothing else says it."""
        for pool_id, decision in decisions.items():
            known, memory = self._memories.get(pool_id), decision.memory
            if known is not None and memory.failed_starts > known.failed_starts:
                late = sorted(memory.given_up)
                _log.warning("what was started did not get ready", pool_id=pool_id, late=late, reason=decision.reason)

    def _recall(self) -> None:
        self._memories = {}
        now_s, ours = self._clock.now_s(), self._heard.own_orders
        for pool_id, wish in self._desk.wishes.items():
            drains = {replica_id: now_s for replica_id in wish.drain if replica_id in ours}
            self._memories[pool_id] = remembered(wish.desired, drains, now_s)
        self._lookout.recall(self._memories)

    async def _publish(
        self, pools: Mapping[str, PoolLoad], decisions: Mapping[str, PoolDecision], now_s: float
    ) -> None:
        self._sequence += 1
        silence = self._policy.scale.silence
        fleet = fleet_metrics(
            {
                pool_id: pool_metrics(load, decisions[pool_id], now_s, silence, self._policy.cost)
                for pool_id, load in pools.items()
            },
            live_gateways(self._heard.gateways.values(), now_s, silence),
            silent_replicas(self._heard.replicas, now_s, silence),
            at_s=self._clock.wall_s(),
            sequence=self._sequence,
        )
        fleet = with_customers(fleet, self._heard.ttft.view(now_s))
        await self._desk.publish(fleet, self._epoch)
        self._meters.published(fleet)

    async def _act(self, decisions: Mapping[str, PoolDecision]) -> None:
        """Wishes come first: whoever takes over finds in them whose drains the orders are."""
        for decision in decisions.values():
            self._meters.decided(decision)
            await self._wish(decision)
        await self._drain(decisions)
        self._carrier.tell(self._lookout.order(decision, self._epoch) for decision in decisions.values())

    async def _forget(self, pool_id: str) -> None:
        """It would be decided and asked about for ever."""
        await self._desk.end_wish(pool_id, self._epoch)
        await self._shapes.forget(pool_id, self._epoch)
        self._memories.pop(pool_id, None)
        self._lookout.forget(pool_id)
        self._meters.forget(pool_id)

    async def _wish(self, decision: PoolDecision) -> None:
        pool_id = decision.pool_id
        before = self._desk.wishes.get(pool_id)
        wish = ScaleWish(
            pool_id=pool_id,
            desired=decision.desired,
            reason=decision.reason,
            at_s=self._clock.wall_s(),
            drain=decision.drain,
            epoch=self._epoch,
        )
        if not await self._desk.wish(wish):
            return
        was = before.desired if before else None
        _log.info(
            "a pool's wish changed",
            pool_id=pool_id, was=was, now=wish.desired, drain=wish.drain, reason=wish.reason,
        )  # fmt: skip
        if was != wish.desired:
            self._meters.wished(pool_id)

    async def _drain(self, decisions: Mapping[str, PoolDecision]) -> None:
        """Write our orders that are missing, and take back those that are over."""
        due = {name: pool_id for pool_id, memory in self._memories.items() for name in memory.drains}
        for replica_id in sorted(due.keys() - self._heard.orders.keys()):
            decision = decisions.get(due[replica_id])
            reason = decision.reason if decision else "its pool is to be smaller"
            if await self._desk.drain(replica_id, reason, self._epoch):
                _log.info("a replica is to drain", replica_id=replica_id, reason=reason)
        for replica_id in sorted(self._heard.own_orders - due.keys()):
            if await self._desk.end_drain(replica_id, self._epoch):
                _log.info("a replica no longer drains, or is gone", replica_id=replica_id)
