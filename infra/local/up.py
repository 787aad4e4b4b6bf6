"""One run of an embedded fleet: from an empty folder to an answered request, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx
import msgspec

from infra.local import secret_file
from infra.local.banner import banner, demo_env
from infra.local.base_model import described, provide
from infra.local.demo import DemoFleet, demo_folders
from infra.local.door import Door
from infra.local.fleet import BusLogin, FleetInputs, ProcessSpec, merged_processes, processes
from infra.local.layout import Layout
from infra.local.nats import options, start_nats
from infra.local.pools import rank_classes
from infra.local.preflight import CannotStart, check_disk, check_engine, check_merging, check_port, take_lock
from infra.local.race import race
from infra.local.replicas import Replicas
from infra.local.settings import LocalSettings
from infra.local.supervisor import Supervisor
from infra.local.valkey import start_valkey
from infra.nats.credentials import write_private
from shared.bus.nats import connect
from shared.messages.desired import BaseModelRecord
from shared.messages.pools import pool_id

Say = Callable[[str], None]
_READY_TIMEOUT_S = 180.0
_ACTIVE_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Base:
    folder: Path
    record: BaseModelRecord


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run is made of. `serving` is called once the fleet has answered a request."""

    settings: LocalSettings
    layout: Layout
    overrides: Mapping[str, str]
    say: Say
    serving: Callable[[], None]


async def run_fleet(run: Run) -> None:
    """Returns when a signal asked for it and every child has ended.

    Raises CannotStart with the one sentence to show; every child has ended then, and all data is kept.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    run.layout.create()
    with take_lock(run.layout.lock):
        await race(_run(run), stop.wait())


async def _run(run: Run) -> None:
    engine = run.overrides.get("LORAFLEET_WORKER_ENGINE", run.settings.engine)
    check_engine(engine)
    if run.settings.scale is not None:
        check_merging(run.overrides.get("LORAFLEET_AUTOSCALER_MERGED_SHARE", ""), engine)
    check_disk(run.layout.home)
    _check_ports(run.settings)
    bases = await _bases(run)
    supervisor = Supervisor(run.layout, run.say)
    try:
        await _serve(run, supervisor, bases)
    finally:
        run.say("stopping")
        await supervisor.stop()
        run.say("stopped; nothing was lost, the next start serves the same adapters")


async def _bases(run: Run) -> dict[str | None, Base]:
    """By the name that the settings give it; None is the fleet's own, which comes first."""
    pools = run.settings.pools
    bases: dict[str | None, Base] = {}
    for name in dict.fromkeys(pool.model for pool in pools):
        folder = await provide(run.layout.models, name or run.settings.model, run.say)
        bases[name] = Base(folder=folder, record=await described(folder, rank_classes(pools, name)))
    return bases


async def _serve(run: Run, supervisor: Supervisor, bases: Mapping[str | None, Base]) -> None:
    redis_url = start_valkey(supervisor, run.layout, run.settings)
    logins = await start_nats(supervisor, run.layout, run.settings)
    run.say(f"nats-server is ready on port {run.settings.nats_port}")
    secrets = secret_file.load_or_create(run.layout.secrets)
    model_folder, *more_folders = (bases[pool.model].folder for pool in run.settings.pools)
    inputs = FleetInputs(
        layout=run.layout, settings=run.settings, model_folder=model_folder, admin_key=secrets.admin_key, logins=logins,
        overrides=run.overrides, redis_url=redis_url, more_folders=tuple(more_folders),
    )  # fmt: skip
    records = [base.record for base in bases.values()]
    pool_ids = [pool_id(bases[pool.model].record.base_model_hash, pool.rank_limit) for pool in run.settings.pools]
    async with _door(run, Replicas(inputs, supervisor, pool_ids, run.say)):
        await _serve_all(run, supervisor, inputs, records)


@asynccontextmanager
async def _door(run: Run, replicas: Replicas) -> AsyncIterator[None]:
    """Where the autoscaler asks for replicas, if it may. Raises CannotStart."""
    if run.settings.scale is None:
        yield
        return
    door = Door(run.layout.door, replicas.answer)
    try:
        await door.start()
    except OSError as error:
        raise CannotStart(f"AUTOSCALE needs a socket in the fleet's folder: {error}") from error
    try:
        yield
    finally:
        await door.stop()


async def _serve_all(run: Run, supervisor: Supervisor, inputs: FleetInputs, records: list[BaseModelRecord]) -> NoReturn:
    specs = processes(inputs)
    for spec in specs:
        supervisor.start_service(spec)
    if run.settings.engine == "torch":
        run.say("replicas are starting; the first time on a machine they compile their kernels (10 to 30 s)")
    aliases = await race(supervisor.no_death(), _first_answer(run, supervisor, specs, inputs, records))
    for spec in merged_processes(inputs):
        supervisor.start_service(spec)
        run.say(f"{spec.name} merges {spec.env['LORAFLEET_WORKER_MERGED']} into its base once that is active")
    run.say(banner(run.settings, secret_file.load_or_create(run.layout.secrets).demo_key, aliases, records[0].name))
    run.serving()
    raise CannotStart(await supervisor.keep_alive())


async def _first_answer(
    run: Run, supervisor: Supervisor, specs: tuple[ProcessSpec, ...], inputs: FleetInputs, bases: list[BaseModelRecord]
) -> list[str]:
    """Bring the demo customer in and wait for one real answer; returns the demo's aliases."""
    base = bases[0]
    registry = next(spec for spec in specs if spec.name == "registry")
    await supervisor.wait_ready([registry], _READY_TIMEOUT_S)
    settings = run.settings
    admin_url, url = (f"http://{settings.host}:{port}" for port in (settings.admin_port, settings.port))
    headers = {"Authorization": f"Bearer {inputs.admin_key}"}
    async with (
        httpx.AsyncClient(base_url=admin_url, headers=headers, timeout=30.0, trust_env=False) as admin,
        httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as door,
    ):
        demo = DemoFleet(admin, door, run.say)
        secrets = secret_file.load_or_create(run.layout.secrets)
        secrets = msgspec.structs.replace(secrets, demo_key=await demo.prepare(bases, secrets.demo_key))
        secret_file.save(run.layout.secrets, secrets)
        announced = await _announce(run, demo, inputs.logins["pipeline"], base)
        await supervisor.wait_ready([spec for spec in specs if spec is not registry], _READY_TIMEOUT_S)
        active = [alias for alias, name in announced.items() if await demo.wait_active(name, _ACTIVE_TIMEOUT_S)]
        asked = next(iter(active), base.name)
        text = await demo.wait_answer(asked, secrets.demo_key, _READY_TIMEOUT_S)
        await demo.tell_awaited(settings.merged)
    run.say(f"{asked} answered: {text.strip()[:60]!r}")
    env = demo_env(settings, inputs.logins["pipeline"], secrets, active)
    write_private(run.layout.demo_env, env.encode())
    return active


async def _announce(run: Run, demo: DemoFleet, login: BusLogin, base: BaseModelRecord) -> Mapping[str, str]:
    """Alias to adapter id of every demo adapter that fits this base model; each announced on the bus."""
    folders = demo_folders(base.base_model_hash) if run.settings.demo else []
    if run.settings.demo and not folders:
        run.say(f"the demo adapters were trained on another base model than {base.name}; none is registered")
    if not folders:
        return {}
    bus = await connect(options(login, "demo-pipeline"))
    try:
        return await demo.bring_in(bus, folders, run.layout.inbox, base.base_model_hash)
    finally:
        await bus.close()


def _check_ports(settings: LocalSettings) -> None:
    check_port(settings.host, settings.port, "LORAFLEET_PORT")
    check_port(settings.host, settings.admin_port, "LORAFLEET_ADMIN_PORT")
    check_port(settings.host, settings.nats_port, "LORAFLEET_NATS_PORT")
    for offset in range(settings.probes):
        check_port(settings.host, settings.probe_port + offset, "LORAFLEET_PROBE_PORT (and the next ones)")
