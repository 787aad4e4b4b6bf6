"""Our own front door: nats-server, Valkey, gateways, and replicas behind them, each where it is to run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from infra.local.fleet import BusLogin
from infra.local.layout import Layout
from infra.local.nats import options, start_nats
from infra.local.settings import LocalSettings
from infra.local.supervisor import Supervisor
from infra.local.temporary import free_ports
from infra.local.valkey import start_valkey
from loadtest.gateway_bench.machine import Cores, Running, on_core, started
from loadtest.gateway_bench.measuring import Door
from loadtest.gateway_bench.records import Cast, write_directory, write_placement, write_weights
from loadtest.gateway_bench.replicas import Plan
from loadtest.gateway_bench.warming import Warming, until_answered
from services.replica_worker.engine.timed.policy import TimedPolicy
from shared.bus.nats import connect

REPLICAS, ROWS = 10, 32
"""As many as 250 streams need, and a few to spare; the rows of a replica are those of fleet A."""
_SAYING_REPLICAS = 1
"""A flood of 32 streams is one replica's, as fast as it can."""
_GRACE_S = 5.0
GATEWAY = "LORAFLEET_GATEWAY_"


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`step_s` 0: replicas that only say what they are asked for."""

    folder: Path
    model: Path
    cast: Cast
    cores: Cores
    gateways: int = 1
    step_s: float = 0.0

    @property
    def replica_ids(self) -> tuple[str, ...]:
        return tuple(f"replica-{at}" for at in range(REPLICAS if self.step_s else _SAYING_REPLICAS))

    @property
    def policy(self) -> TimedPolicy | None:
        """A prompt costs nothing: the mock backends have no prompts to compute either."""
        if not self.step_s:
            return None
        return TimedPolicy(
            base_model_hash=self.cast.base_model_hash, slots=self.cast.customers, max_rows=ROWS, step_s=self.step_s,
            prefill_tokens_per_s=1e12, link_bytes_per_s=1e12,
        )  # fmt: skip


@asynccontextmanager
async def fleet(plan: FleetPlan) -> AsyncIterator[Door]:
    """It answers once this is entered. Raises CannotStart, RuntimeError, TimeoutError."""
    layout = Layout(plan.folder)
    layout.create()
    write_weights(plan.cast, layout.store)
    [nats_port] = free_ports(1)
    settings = LocalSettings(home=plan.folder, nats_port=nats_port)
    async with AsyncExitStack() as ends:
        supervisor = Supervisor(layout, lambda _: None)
        ends.push_async_callback(supervisor.stop)
        with on_core(plan.cores.others):  # or they would take of the gateway's core what they wake up for
            redis_url = start_valkey(supervisor, layout, settings)
            logins = await start_nats(supervisor, layout, settings)
        pids = msgspec.json.decode(layout.pids.read_bytes(), type=dict[str, int])
        replicas = await _replicas(plan, layout, logins, ends)
        env = {**logins["gateway"].env(GATEWAY), f"{GATEWAY}REDIS_URL": redis_url}
        ports = free_ports(plan.gateways)
        gateways = [
            launch_gateway(layout, f"gateway-{at}", {**env, f"{GATEWAY}PORT": str(port)}, plan.cores.measured)
            for at, port in enumerate(ports)
        ]
        for gateway in gateways:
            ends.push_async_callback(gateway.stop, _GRACE_S)
        await asyncio.gather(*map(until_answered, ports, gateways))
        groups = {"gateway": [each.pid for each in gateways], "worker": [replicas.pid]}
        yield Door(
            ports=tuple(ports),
            header=f"authorization: Bearer {plan.cast.key}",
            groups={**groups, **{name: [pid] for name, pid in pids.items()}},
        )


async def _replicas(plan: FleetPlan, layout: Layout, logins: Mapping[str, BusLogin], ends: AsyncExitStack) -> Running:
    """With all that they are to know and to hold."""
    registry = await connect(options(logins["registry"], "bench"))
    ends.push_async_callback(registry.close)
    placement = await connect(options(logins["placement"], "bench"))
    ends.push_async_callback(placement.close)
    warming = Warming(placement)
    await warming.start()
    await write_directory(registry, plan.cast)
    await write_placement(placement, plan.cast, plan.replica_ids)
    told = _told(plan, layout, logins["replica_worker"])
    replicas = launch_replicas(told, layout, "replicas", plan.cores.others)
    ends.push_async_callback(replicas.stop, _GRACE_S)
    await warming.until(len(plan.replica_ids), plan.cast.customers if plan.step_s else 0, "gpu", replicas)
    return replicas


def _told(plan: FleetPlan, layout: Layout, login: BusLogin) -> Plan:
    return Plan(
        nats_url=login.url, nats_user=login.user, nats_password=login.password, replica_ids=plan.replica_ids,
        base_model_hash=plan.cast.base_model_hash, model_folder=str(plan.model), store_url=layout.store.as_uri(),
        cache_folder=str(layout.home / "cache"), policy=plan.policy,
    )  # fmt: skip


def launch_replicas(told: Plan, layout: Layout, name: str, core: int | None) -> Running:
    """A process of all replicas of this plan, on this core if one is named. Raises OSError."""
    path = layout.home / f"{name}.json"
    path.write_bytes(msgspec.json.encode(told))
    return started(name, [sys.executable, "-m", "loadtest.gateway_bench.replicas", str(path)], core, layout.logs)


def launch_gateway(layout: Layout, name: str, env: Mapping[str, str], core: int | None) -> Running:
    """Raises OSError."""
    own = {f"{GATEWAY}GATEWAY_ID": name, f"{GATEWAY}ROUTE_LOG_ONE_IN": "0"}
    return started(name, [sys.executable, "-m", "services.gateway"], core, layout.logs, {**env, **own})
