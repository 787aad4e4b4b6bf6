"""Fleet A in real time on one machine: everything but the engines' arithmetic is real.

Sizes are scaled, times are not: an adapter's file has a thousand bytes instead of 80 million, and so have budgets and
links, so that every adapter takes as long from tier to tier as a whole one would.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
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
from loadtest.gateway_bench.fleet import GATEWAY, launch_gateway, launch_replicas
from loadtest.gateway_bench.machine import started
from loadtest.gateway_bench.records import Cast, write_directory, write_weights
from loadtest.gateway_bench.replicas import Plan
from loadtest.gateway_bench.warming import Warming, until_answered
from services.replica_worker.engine.timed.policy import TimedPolicy
from shared.bus.nats import connect

REPLICAS, ADAPTERS, OWNERS = 26, 5_000, 2
ADAPTER_BYTES, REAL_ADAPTER_BYTES = 1_000, 80_000_000
_SCALE = ADAPTER_BYTES / REAL_ADAPTER_BYTES
_RAM_BYTES, _DISK_BYTES, _LINK_BYTES_PER_S = 48e9, 200e9, 10e9
"""Of a replica of the specification, before they are scaled."""
CHUNK_TOKENS = 1_024
"""A prompt of 750 tokens in one step, as the specification reckons and the twin does."""
_PROCESSES = 2
_GRACE_S = 10.0
_WARM_S = 180.0


class LiveFleet(msgspec.Struct, frozen=True, kw_only=True):
    """`pids` by what the report calls them."""

    url: str
    pids: Mapping[str, Sequence[int]]


def policy(base_model_hash: str) -> TimedPolicy:
    return TimedPolicy(
        base_model_hash=base_model_hash,
        prefill_chunk_tokens=CHUNK_TOKENS,
        link_bytes_per_s=_LINK_BYTES_PER_S * _SCALE,
    )


@asynccontextmanager
async def live_fleet(folder: Path, model: Path, cast: Cast) -> AsyncIterator[LiveFleet]:
    """Every adapter is in the RAM of its owners once this is entered. Raises CannotStart, RuntimeError,
    TimeoutError."""
    layout = Layout(folder)
    layout.create()
    write_weights(cast, layout.store)
    [nats_port, port] = free_ports(2)
    async with AsyncExitStack() as ends:
        supervisor = Supervisor(layout, lambda _: None)
        ends.push_async_callback(supervisor.stop)
        redis_url = start_valkey(supervisor, layout, LocalSettings(home=folder))
        logins = await start_nats(supervisor, layout, LocalSettings(home=folder, nats_port=nats_port))
        registry = await connect(options(logins["registry"], "live"))
        ends.push_async_callback(registry.close)
        listening = await connect(options(logins["placement"], "live"))
        ends.push_async_callback(listening.close)
        warming = Warming(listening)
        await warming.start()
        await write_directory(registry, cast)
        env = {**logins["gateway"].env(GATEWAY), f"{GATEWAY}REDIS_URL": redis_url, f"{GATEWAY}PORT": str(port)}
        gateway = launch_gateway(layout, "gateway-0", env, None)
        placement = _placement(layout, logins["placement"])
        replicas = [
            launch_replicas(plan, layout, f"replicas-{at}", None)
            for at, plan in enumerate(_plans(layout, model, cast, logins["replica_worker"]))
        ]
        for child in (gateway, placement, *replicas):
            ends.push_async_callback(child.stop, _GRACE_S)
        await until_answered(port, gateway)
        await warming.until_held(OWNERS * cast.customers, _WARM_S, replicas[0])
        pids = msgspec.json.decode(layout.pids.read_bytes(), type=dict[str, int])
        yield LiveFleet(
            url=f"http://127.0.0.1:{port}",
            pids={
                **{name: [pid] for name, pid in pids.items()},
                "gateway": [gateway.pid],
                "placement": [placement.pid],
                "workers": [each.pid for each in replicas],
            },
        )


def _plans(layout: Layout, model: Path, cast: Cast, login: BusLogin) -> list[Plan]:
    names = [f"replica-{at}" for at in range(REPLICAS)]
    return [
        Plan(
            nats_url=login.url, nats_user=login.user, nats_password=login.password,
            replica_ids=tuple(names[first::_PROCESSES]), base_model_hash=cast.base_model_hash,
            model_folder=str(model), store_url=layout.store.as_uri(), cache_folder=str(layout.home / "cache"),
            policy=policy(cast.base_model_hash), ram_budget_bytes=int(_RAM_BYTES * _SCALE),
            disk_budget_bytes=int(_DISK_BYTES * _SCALE), stamped=False,
        )
        for first in range(_PROCESSES)
    ]  # fmt: skip


def _placement(layout: Layout, login: BusLogin):
    env = login.env("LORAFLEET_PLACEMENT_")
    return started("placement", [sys.executable, "-m", "services.placement"], None, layout.logs, env)
