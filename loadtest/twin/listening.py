"""Who reads what on the bus."""

from __future__ import annotations

from functools import partial

from loadtest.twin.gateway import Gateway
from loadtest.twin.placing import Placing
from loadtest.twin.registry import Registry
from loadtest.twin.scaling import Autoscaling
from loadtest.twin.wire import Wire
from services.gateway.core.fleet import AHEAD_AT_ONCE
from shared.contracts.catalog import (
    GATEWAY_ACTIVITY,
    MEMBERSHIP,
    OWNER_COUNT,
    PRESSURE,
    REPLICA_REPORT,
    REPLICA_RESIDENCY,
)
from shared.messages.desired import Membership, OwnerCount


def gateway_listens(gateway: Gateway, wire: Wire, registry: Registry) -> None:
    """It knows of what is registered by now, as a real one does from the aliases."""
    wire.read(REPLICA_REPORT, gateway.on_report)
    wire.read(REPLICA_RESIDENCY, gateway.on_residency)
    wire.read(MEMBERSHIP, partial(_put_membership, gateway))
    for record in registry.records.values():
        gateway.fleet.expect(record.pool_id, record.adapter_id)
    wire.read(OWNER_COUNT, partial(_put_owner_count, gateway))


def placement_listens(placement: Placing, wire: Wire) -> None:
    wire.read(REPLICA_REPORT, placement.on_report)
    wire.read(REPLICA_RESIDENCY, placement.on_residency)
    wire.read(GATEWAY_ACTIVITY, placement.on_activity)


def scaling_listens(scaling: Autoscaling, wire: Wire) -> None:
    wire.read(REPLICA_REPORT, scaling.on_report)
    wire.read(GATEWAY_ACTIVITY, scaling.on_activity)
    wire.read(MEMBERSHIP, scaling.on_membership)
    wire.read(PRESSURE, scaling.on_pressure)


def _put_membership(gateway: Gateway, membership: Membership) -> None:
    gateway.fleet.put_membership(membership.pool_id, membership)
    ranked = AHEAD_AT_ONCE
    while ranked == AHEAD_AT_ONCE:  # far quicker than each for itself when it is first asked for
        ranked = gateway.fleet.rank_ahead(AHEAD_AT_ONCE)


def _put_owner_count(gateway: Gateway, count: OwnerCount) -> None:
    gateway.fleet.put_owner_count(count.pool_id, count)
