"""`python -m services.autoscaler`: wiring, and nothing else."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path

from services.autoscaler.app import TURN_S, Autoscaler
from services.autoscaler.carrying import CARRY_S, Carrier
from services.autoscaler.core.cost import CostPolicy
from services.autoscaler.core.demand import DemandPolicy
from services.autoscaler.core.merged import MergedPolicy
from services.autoscaler.core.policy import (
    DrainPolicy,
    FloorPolicy,
    NeedPolicy,
    PacePolicy,
    ScalePolicy,
    StartPolicy,
)
from services.autoscaler.io.actuator import Actuator, ActuatorFailed
from services.autoscaler.io.compose import Compose
from services.autoscaler.io.desk import Desk
from services.autoscaler.io.heard import Heard
from services.autoscaler.io.meters import Meters
from services.autoscaler.io.recommend import Recommend
from services.autoscaler.io.supervised import Supervised
from services.autoscaler.lookout import AutoscalerPolicy, Lookout
from services.autoscaler.settings import PREFIX, Settings
from shared.bus.nats import BusOptions, connect
from shared.contracts.catalog import LEASE, SCALE_WISH
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger
from shared.runtime import logs
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError, read
from shared.ttft_by_customer import TtftByCustomer, TtftPolicy


def policy_of(settings: Settings) -> AutoscalerPolicy:
    return AutoscalerPolicy(
        scale=ScalePolicy(
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            need=NeedPolicy(
                utilisation=settings.utilisation,
                max_queue_s=settings.max_queue_s,
                tokens_in_flight_per_replica=settings.tokens_in_flight_per_replica,
            ),
            pace=PacePolicy(
                settle_s=settings.up_cooldown_s,
                down_hold_s=settings.down_cooldown_s,
                down_step_s=settings.down_step_s,
                panic_s=settings.panic_s,
            ),
            start=StartPolicy(deadline_s=settings.start_deadline_s),
            drain=DrainPolicy(deadline_s=settings.drain_deadline_s),
            floor=FloorPolicy(enabled=settings.day_shape),
        ),
        cost=CostPolicy(
            usd_per_replica_hour=settings.usd_per_replica_hour,
            budget_usd_per_hour=settings.budget_usd_per_hour or None,
        ),
        windows=DemandPolicy(average_s=settings.average_s),
        merged=MergedPolicy(
            enabled=settings.merged_share > 0,
            share=settings.merged_share or MergedPolicy().share,
            hold_s=settings.merged_hold_s,
            quiet_hold_s=settings.merged_quiet_s,
        ),
        fill_s=settings.fill_s,
    )


def actuator_of(settings: Settings) -> Actuator:
    """Raises SettingsError if its server cannot be found."""
    match settings.actuator:
        case "process":
            return Supervised(Path(settings.supervisor), starts_merged=settings.merged_share > 0)
        case "compose":
            return Compose(shlex.split(settings.compose_command), settings.names)
        case "kubernetes":
            return _in_kubernetes(settings)
    return Recommend()


def _in_kubernetes(settings: Settings) -> Actuator:
    # The client is an extra of its own, and takes a second to import.
    from services.autoscaler.io.statefulsets import StatefulSets, connected

    try:
        return StatefulSets(connected(), settings.kubernetes_namespace, settings.names)
    except ActuatorFailed as error:
        raise SettingsError(f"{PREFIX}ACTUATOR=kubernetes: {error}") from error


async def main() -> None:
    settings = read(Settings, PREFIX, os.environ)
    logs.configure("autoscaler", settings.instance)
    options = BusOptions(
        url=settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        client_name=settings.instance,
    )
    bus = await connect(options)
    clock, metrics, policy = SystemClock(), Metrics("autoscaler"), policy_of(settings)
    meters, actuator = Meters(metrics), actuator_of(settings)
    leader = Leader(bus.state(LEASE), clock, role="autoscaler", holder=f"{settings.instance}-{secrets.token_hex(4)}")
    desk = Desk(bus, leader, Ledger("scale_wish", bus.state(SCALE_WISH), leader.may_act))
    carrier = Carrier(actuator, clock, meters, leader.may_act)
    follows = policy.merged.enabled and actuator.starts_merged
    ttft = TtftByCustomer(TtftPolicy(objective_s=settings.objective_ttft_s))
    heard = Heard(bus, clock, policy.windows, ttft, follow_customers=follows)
    lookout = Lookout(clock, policy, heard, carrier)
    autoscaler = Autoscaler(clock, policy, lookout, desk, meters)
    probe = ProbeServer(settings.probe_port, metrics, autoscaler.unready_reason, status=autoscaler.status)
    # The lease is given up last: until then this autoscaler may have something under way.
    parts = [
        probe, leader, periodically(clock, leader.turn_s, leader.turn),
        autoscaler, periodically(clock, TURN_S, autoscaler.turn), periodically(clock, CARRY_S, carrier.turn),
    ]  # fmt: skip
    try:
        await run_until_stopped("autoscaler", parts)
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
