"""`python -m services.placement`: wiring, and nothing else."""

from __future__ import annotations

import os
import secrets

from services.placement.app import TURN_S, Placement, PlacementPolicy
from services.placement.core.membership import MembershipPolicy
from services.placement.core.needs import NeedPolicy
from services.placement.core.owners import ChurnPolicy
from services.placement.core.pressure import ThrashPolicy
from services.placement.core.tick import TickPolicy
from services.placement.core.weights import WeightPolicy
from services.placement.io.desk import Desk, Ledgers
from services.placement.io.heard import Heard
from services.placement.io.meters import Meters
from services.placement.settings import PREFIX, Settings
from shared.bus.nats import BusOptions, connect
from shared.contracts.catalog import ASSIGNMENT, LEASE, MEMBERSHIP, OWNER_COUNT, PRESSURE
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger
from shared.runtime import logs
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import periodically, run_main, run_until_stopped
from shared.runtime.settings import read


def policy_of(settings: Settings) -> PlacementPolicy:
    return PlacementPolicy(
        tick=TickPolicy(
            membership=MembershipPolicy(
                lost_after_s=settings.lost_after_s,
                lost_grace_s=settings.lost_grace_s,
                starting_grace_s=settings.starting_grace_s,
            ),
            need=NeedPolicy(
                target_share=settings.target_share,
                tokens_per_s=settings.replica_tokens_per_s,
                hold_s=settings.shrink_after_s,
            ),
            weight=WeightPolicy(rates=settings.rates_by_gpu_kind()),
            churn=ChurnPolicy(moves=settings.moves_per_s),
            thrash=ThrashPolicy(evictions_per_min=settings.evictions_per_min),
            owners=settings.owners,
            refresh_s=settings.refresh_s,
        ),
        fill_s=settings.fill_s,
    )


async def main() -> None:
    settings = read(Settings, PREFIX, os.environ)
    logs.configure("placement", settings.instance)
    options = BusOptions(
        url=settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        client_name=settings.instance,
    )
    bus = await connect(options)
    clock, metrics = SystemClock(), Metrics("placement")
    policy = policy_of(settings)
    leader = Leader(bus.state(LEASE), clock, role="placement", holder=f"{settings.instance}-{secrets.token_hex(4)}")
    ledgers = Ledgers(
        memberships=Ledger("membership", bus.state(MEMBERSHIP), leader.may_act),
        owner_counts=Ledger("owner_count", bus.state(OWNER_COUNT), leader.may_act),
        shards=Ledger("assignment", bus.state(ASSIGNMENT), leader.may_act),
        pressures=Ledger("pressure", bus.state(PRESSURE), leader.may_act),
    )
    desk = Desk(bus, leader, ledgers)
    placement = Placement(
        clock, policy, Heard(bus, clock, policy.tick.membership, policy.tick.demand), desk, Meters(metrics)
    )
    probe = ProbeServer(settings.probe_port, metrics, placement.unready_reason, status=placement.status)
    # The lease is given up last: until then this placement may have something under way.
    lease = (leader, periodically(clock, leader.turn_s, leader.turn))
    try:
        await run_until_stopped("placement", [probe, *lease, placement, periodically(clock, TURN_S, placement.turn)])
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
