"""`python -m services.autoscaler`: wiring, and nothing else."""

from __future__ import annotations

import os

from services.autoscaler.app import TURN_S, Autoscaler, AutoscalerPolicy
from services.autoscaler.core.need import NeedPolicy
from services.autoscaler.core.scale import ScalePolicy
from services.autoscaler.io.meters import Meters
from services.autoscaler.settings import PREFIX, Settings
from shared.bus.nats import BusOptions, connect
from shared.runtime import logs
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import periodically, run_main, run_until_stopped
from shared.runtime.settings import read


def policy_of(settings: Settings) -> AutoscalerPolicy:
    return AutoscalerPolicy(
        scale=ScalePolicy(
            need=NeedPolicy(
                max_queue_s=settings.max_queue_s,
                tokens_in_flight_per_replica=settings.tokens_in_flight_per_replica,
            ),
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            up_cooldown_s=settings.up_cooldown_s,
            down_cooldown_s=settings.down_cooldown_s,
            start_deadline_s=settings.start_deadline_s,
        ),
        fill_s=settings.fill_s,
    )


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
    clock, metrics = SystemClock(), Metrics("autoscaler")
    autoscaler = Autoscaler(bus, clock, policy_of(settings), Meters(metrics))
    probe = ProbeServer(settings.probe_port, metrics, autoscaler.unready_reason)
    try:
        await run_until_stopped("autoscaler", [probe, autoscaler, periodically(clock, TURN_S, autoscaler.turn)])
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
