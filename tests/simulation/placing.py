"""Placement wired as its own `__main__` does it, on whatever bus and clock a test has."""

from __future__ import annotations

from services.placement.app import Placement, PlacementPolicy
from services.placement.io.desk import Desk, Ledgers
from services.placement.io.heard import Heard
from services.placement.io.meters import Meters
from shared.bus.port import Bus
from shared.contracts.catalog import ASSIGNMENT, LEASE, MEMBERSHIP, OWNER_COUNT, PRESSURE
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics


class Placing:
    """A placement and its part in the role, which take their turns together."""

    def __init__(self, placement: Placement, leader: Leader) -> None:
        self.placement = placement
        self.leader = leader
        self.start = placement.start
        self.unready_reason = placement.unready_reason
        self.status = placement.status

    async def turn(self) -> None:
        await self.leader.turn()
        await self.placement.turn()

    async def stop(self) -> None:
        await self.placement.stop()
        await self.leader.stop()


def placement_on(bus: Bus, clock: Clock, policy: PlacementPolicy, holder: str = "p1") -> Placing:
    leader = Leader(bus.state(LEASE), clock, role="placement", holder=holder)
    ledgers = Ledgers(
        memberships=Ledger("membership", bus.state(MEMBERSHIP), leader.may_act),
        owner_counts=Ledger("owner_count", bus.state(OWNER_COUNT), leader.may_act),
        shards=Ledger("assignment", bus.state(ASSIGNMENT), leader.may_act),
        pressures=Ledger("pressure", bus.state(PRESSURE), leader.may_act),
    )
    heard = Heard(bus, clock, policy.tick.membership, policy.tick.demand)
    placement = Placement(clock, policy, heard, Desk(bus, leader, ledgers), Meters(Metrics("placement")))
    return Placing(placement, leader)
