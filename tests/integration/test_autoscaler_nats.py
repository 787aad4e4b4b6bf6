"""The autoscaler on the real bus, as its own process with its own rights."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.bus.nats import connect
from shared.contracts.catalog import FLEET_METRICS, GATEWAY_REPORT, LEASE, SCALE_WISH
from shared.messages.reports import GatewayReport
from shared.runtime.clock import SystemClock
from shared.runtime.service import periodically
from tests.conftest import Within
from tests.simulation.speakers import POOL, Replica
from tests.simulation.watching import Followed
from tests.support.nats_server import NatsServer, nats_server


async def start(server: NatsServer) -> asyncio.subprocess.Process:
    options = server.options("autoscaler")
    environ = {"LORAFLEET_AUTOSCALER_NATS_URL": options.url, "LORAFLEET_AUTOSCALER_NATS_PASSWORD": options.password}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.autoscaler", env={**os.environ, **environ}
    )


@asynccontextmanager
async def running(server: NatsServer) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await start(server)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_operators_see_the_fleet_each_second_and_the_wish_behind_it(tmp_path: Path, within: Within) -> None:
    async with within(60), nats_server(tmp_path) as server:
        worker, gateway, console = [await connect(server.options(u)) for u in ("replica_worker", "gateway", "console")]
        metrics, wishes = await Followed().start(console, FLEET_METRICS), await Followed().start(console, SCALE_WISH)
        replica = Replica(worker, "r1")

        async def say() -> None:
            await replica.report(running=32, tokens_in_flight=300_000)
            said = GatewayReport(gateway_id="g1", sequence=1, streams=32, requests=40, refused=0, tokens=900)
            await gateway.publish(GATEWAY_REPORT, said, "g1")

        voice = periodically(SystemClock(), 0.2, say)
        await voice.start()
        process = await start(server)
        try:
            fleet = await metrics.until(lambda values: (f := values.get(())) and f.sequence >= 2 and f.gateways and f)
            assert (fleet.streams, fleet.pools[0].pool_id, fleet.pools[0].ready) == (32, POOL, 1)
            assert fleet.pools[0].desired == 2
            wish = await wishes.until(lambda values: (w := values.get((POOL,))) and w.desired == 2 and w)
            assert wish.reason == "300000 tokens in flight at 64000 a replica"
        finally:
            process.terminate()
            assert await process.wait() == 0
            await voice.stop()
            for bus in (worker, gateway, console):
                await bus.close()


async def test_a_standby_follows_a_paused_autoscaler_which_then_stands_by(tmp_path: Path, within: Within) -> None:
    async with within(90), nats_server(tmp_path) as server:
        worker, console = [await connect(server.options(user)) for user in ("replica_worker", "console")]
        wishes, leases = await Followed().start(console, SCALE_WISH), await Followed().start(console, LEASE)
        replica = Replica(worker, "r1")

        async def say() -> None:
            await replica.report()

        voice = periodically(SystemClock(), 0.2, say)
        await voice.start()
        async with running(server) as first:
            await wishes.until(lambda values: (w := values.get((POOL,))) and w.epoch == 1)
            first.send_signal(signal.SIGSTOP)
            async with running(server):
                await wishes.until(lambda values: values[(POOL,)].epoch == 2)
                first.send_signal(signal.SIGCONT)
                beat = leases.values[("autoscaler",)].beat
                lease = await leases.until(lambda values: (f := values[("autoscaler",)]).beat > beat + 2 and f)
                assert (lease.epoch, wishes.values[(POOL,)].epoch) == (2, 2)
        await voice.stop()
        for bus in (worker, console):
            await bus.close()
