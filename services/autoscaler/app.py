"""The autoscaler: folds what everybody reports, says once a second how the fleet is, and wishes.

A wish is desired state on the bus. Nobody carries it out yet; it is there for people to see.
"""

from __future__ import annotations

import msgspec

from services.autoscaler.core.fold import (
    HeardGateway,
    HeardReplica,
    PoolLoad,
    SilencePolicy,
    loads,
    newer,
    silent_replicas,
)
from services.autoscaler.core.metrics import fleet_metrics, live_gateways, pool_metrics
from services.autoscaler.core.scale import PoolWish, ScalePolicy, first_wish, on_tick, remembered_wish
from services.autoscaler.io.meters import Meters
from shared.bus.port import Bus, BusUnavailable, Ids, Subscription
from shared.contracts.catalog import FLEET_METRICS, GATEWAY_REPORT, REPLICA_REPORT, SCALE_WISH
from shared.messages.desired import ScaleWish
from shared.messages.reports import GatewayReport, ReplicaReport
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

TURN_S = 1.0

_log = get_logger(__name__)


class AutoscalerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    silence: SilencePolicy = SilencePolicy()
    scale: ScalePolicy = ScalePolicy()
    fill_s: float = 1.5


class Autoscaler:
    """A part of a service; `turn` is to be called every TURN_S."""

    def __init__(self, bus: Bus, clock: Clock, policy: AutoscalerPolicy, meters: Meters) -> None:
        self._bus = bus
        self._clock = clock
        self._policy = policy
        self._meters = meters
        self._wishes_kept = bus.state(SCALE_WISH)
        self._replicas: dict[str, HeardReplica] = {}
        self._gateways: dict[str, HeardGateway] = {}
        self._wishes: dict[str, PoolWish] = {}
        self._published: dict[str, int] = {}
        """The desired counts that the bus holds."""
        self._filled_at_s: float | None = None
        self._sequence = 0
        self._open: list[Subscription] = []

    async def start(self) -> None:
        """Listen, and take up the wishes on record. Raises BusUnavailable; nothing was written then, and
        nothing is left running."""
        try:
            await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()

    def unready_reason(self) -> str | None:
        """For the probe: None while fleet metrics go out."""
        if not self._bus.connected:
            return "the bus cannot be reached"
        return None if self._sequence else "its view of the fleet has not filled yet"

    async def turn(self) -> None:
        """Look, decide, say so. A silent replica is waited for by nobody."""
        now_s = self._clock.now_s()
        if self._filled_at_s is None or now_s < self._filled_at_s:
            return
        pools = loads(self._replicas.values(), now_s, self._policy.silence)
        self._decide(pools, now_s)
        try:
            await self._publish(pools, now_s)
            await self._keep_wishes()
        except BusUnavailable as error:
            _log.warning("fleet metrics or a wish could not be sent; the next turn does it", error=error)
        self._forget(now_s)

    async def _listen(self) -> None:
        self._open.append(await self._bus.subscribe(REPLICA_REPORT, self._on_replica))
        self._open.append(await self._bus.subscribe(GATEWAY_REPORT, self._on_gateway))
        now_s = self._clock.now_s()
        for entry in await self._wishes_kept.entries():
            if entry.value is not None:
                pool_id, desired = entry.value.pool_id, entry.value.desired
                self._published[pool_id] = desired
                self._wishes[pool_id] = remembered_wish(pool_id, desired, now_s)
        self._filled_at_s = now_s + self._policy.fill_s

    def _decide(self, pools: dict[str, PoolLoad], now_s: float) -> None:
        for pool_id, load in pools.items():
            before = self._wishes.get(pool_id) or first_wish(load, now_s, self._policy.scale)
            self._wishes[pool_id] = on_tick(before, load, now_s, self._policy.scale)
            self._meters.saw(load, self._wishes[pool_id])

    async def _publish(self, pools: dict[str, PoolLoad], now_s: float) -> None:
        self._sequence += 1
        fleet = fleet_metrics(
            {pool_id: pool_metrics(load, self._wishes[pool_id]) for pool_id, load in pools.items()},
            live_gateways(self._gateways.values(), now_s, self._policy.silence),
            silent_replicas(self._replicas, now_s, self._policy.silence),
            at_s=self._clock.wall_s(),
            sequence=self._sequence,
        )
        await self._bus.publish(FLEET_METRICS, fleet)
        self._meters.published(fleet)

    async def _keep_wishes(self) -> None:
        for pool_id, wish in self._wishes.items():
            if self._published.get(pool_id) == wish.desired:
                continue
            kept = ScaleWish(pool_id=pool_id, desired=wish.desired, reason=wish.reason, at_s=self._clock.wall_s())
            await self._wishes_kept.put(kept, pool_id)
            _log.info(
                "a pool's wish changed",
                pool_id=pool_id,
                was=self._published.get(pool_id),
                now=wish.desired,
                reason=wish.reason,
            )
            self._published[pool_id] = wish.desired
            self._meters.wished(pool_id)

    def _forget(self, now_s: float) -> None:
        after_s = self._policy.silence.forgotten_after_s
        self._replicas = {name: heard for name, heard in self._replicas.items() if now_s - heard.at_s <= after_s}
        self._gateways = {name: heard for name, heard in self._gateways.items() if now_s - heard.at_s <= after_s}

    async def _on_replica(self, report: ReplicaReport, ids: Ids) -> None:
        before = self._replicas.get(report.replica_id)
        self._replicas[report.replica_id] = newer(before, report, self._clock.now_s())

    async def _on_gateway(self, report: GatewayReport, ids: Ids) -> None:
        self._gateways[report.gateway_id] = HeardGateway(report=report, at_s=self._clock.now_s())
