"""Placement wired as its own `__main__` does it, on whatever bus and clock a test has."""

from __future__ import annotations

from services.placement.app import Placement, PlacementPolicy
from services.placement.io.desk import Desk
from services.placement.io.heard import Heard
from services.placement.io.ledger import Ledger, epoch_of
from services.placement.io.meters import Meters
from shared.bus.port import Bus
from shared.contracts.catalog import ASSIGNMENT, MEMBERSHIP, OWNER_COUNT
from shared.runtime.clock import Clock
from shared.runtime.metrics import Metrics


def placement_on(bus: Bus, clock: Clock, policy: PlacementPolicy) -> Placement:
    desk = Desk(
        bus,
        Ledger("membership", bus.state(MEMBERSHIP), epoch_of),
        Ledger("owner_count", bus.state(OWNER_COUNT), epoch_of),
        Ledger("assignment", bus.state(ASSIGNMENT), epoch_of),
    )
    heard = Heard(bus, clock, policy.tick.membership)
    return Placement(clock, policy, heard, desk, Meters(Metrics("placement")))
