"""`python -m services.gateway`: the gateway's parts, put together and run until a signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence

import msgspec

from services.gateway.app import Draws, Gateway
from services.gateway.conversation import Desk, Policies
from services.gateway.conversations import Conversations
from services.gateway.core.activity import Activity
from services.gateway.core.allowance import LeasePolicy
from services.gateway.core.allowances import Allowances
from services.gateway.core.company import Company
from services.gateway.core.directory import Directory
from services.gateway.core.fleet import Fleet
from services.gateway.core.openai.bodies import PARSERS
from services.gateway.core.restarts import RestartPolicy
from services.gateway.core.usage import UsageQueue
from services.gateway.following import Audience, Following
from services.gateway.io.descriptors import allowed_connections
from services.gateway.io.generation_route import GenerationRoute, RoutePolicy
from services.gateway.io.http import application
from services.gateway.io.limits_redis import RedisLedger
from services.gateway.io.meters import Meters, show_customers
from services.gateway.io.protocol import prompt_protocol
from services.gateway.io.shortcut import Shortcut
from services.gateway.io.worker_program import start_worker, when_orphaned
from services.gateway.limits import TURN_S, Limits, LimitsMeans
from services.gateway.post import Post
from services.gateway.records import Audit, Records
from services.gateway.replicas import Replicas
from services.gateway.routing import Routing
from services.gateway.settings import PREFIX, Settings
from services.gateway.telling import Telling
from services.gateway.usage import Usage
from services.gateway.workers import Workers
from shared.bus.nats import BusOptions, connect
from shared.bus.port import Bus
from shared.runtime import garbage, logs, settings
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.http_server import HttpServer
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import Part, periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError
from shared.runtime.tracing import NO_TRACER, Tracer, tracer_to
from shared.ttft_by_customer import TtftByCustomer

TICK_S = 0.1
REPORT_S = 1.0
_LAST_WORD_S = 5.0
"""What a worker may take beyond its drain."""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """`parts` in the order of their start: the HTTP door opens last and closes first."""

    following: Following
    server: HttpServer
    parts: tuple[Part, ...]


def assemble(chosen: Settings, bus: Bus, clock: Clock, tracer: Tracer = NO_TRACER) -> Assembly:
    # A process that was restarted must not get, or answer for, what its predecessor had asked for.
    gateway_id = f"{chosen.gateway_id}-{secrets.token_hex(4)}"
    metrics = Metrics("gateway")
    post = Post(bus, gateway_id)
    usage = Usage(bus, clock, UsageQueue(gateway_id, chosen.usage), metrics)
    activity = Activity(gateway_id, chosen.activity, clock.now_s())
    customers = TtftByCustomer(chosen.customers)
    show_customers(metrics, customers, clock)
    audit = Audit(meters=Meters(metrics), activity=activity, customers=customers)
    limits = _limits(chosen, gateway_id, clock, metrics)
    records = Records(audit, limits.settled_after(usage.record))
    fleet = Fleet(chosen.fresh_s, chosen.quarantine)
    routing = Routing(fleet, chosen.routing, metrics, random.random, chosen.route_log_one_in)
    desk = Desk(
        gateway_id=gateway_id, fleet=fleet, post=post, records=records, routing=routing, clock=clock,
        policies=Policies(
            streams=chosen.streams, most_waiting_bytes=chosen.most_waiting_bytes, most_streams=chosen.most_streams,
            objective_s=chosen.objective_ttft_s if chosen.shed_late else 0.0,
        ),
        tracer=tracer,
    )  # fmt: skip
    conversations = Conversations(desk)
    audience = Audience(
        gateway_id=gateway_id, directory=Directory(), fleet=desk.fleet, conversations=conversations,
        replicas=Replicas(desk, conversations), limits=limits,
    )  # fmt: skip
    following = Following(bus, clock, audience)
    draws = Draws(unique_id=lambda: os.urandom(12).hex(), seed=lambda: int.from_bytes(os.urandom(8)) >> 1)
    gateway = Gateway(desk, audience, following, draws)
    policy = RoutePolicy(body=chosen.body, strategies=chosen.request_strategies)
    routes = {path: GenerationRoute(gateway, policy, parse) for path, parse in PARSERS.items()}
    app = Shortcut(application(gateway, routes, metrics), routes)
    address, protocol = (chosen.host, chosen.port), prompt_protocol(chosen.connections)
    server = HttpServer(app, address, chosen.drain_s, protocol, conversations.shut_down)
    server.shares_port = chosen.worker >= 0
    probe_port = chosen.metrics_port + chosen.worker if chosen.worker >= 0 else 0
    probe = ProbeServer(probe_port, metrics, gateway.not_ready, chosen.host)
    ticks = periodically(clock, TICK_S, gateway.tick)
    reports = periodically(clock, REPORT_S, gateway.report)
    telling = Telling(activity, post, clock)
    leases = periodically(clock, TURN_S, limits.turn)
    parts = (post, usage, telling, limits, leases, following, ticks, reports, probe, server)
    return Assembly(following=following, server=server, parts=parts)


def _limits(chosen: Settings, gateway_id: str, clock: Clock, metrics: Metrics) -> Limits:
    """Raises SettingsError for a URL that names no Redis."""
    means = LimitsMeans(
        allowances=Allowances(gateway_id, LeasePolicy()), company=Company(gateway_id), wait_s=chosen.limits_wait_s,
        places_wait_s=chosen.limits_streams_wait_s,
    )  # fmt: skip
    try:
        ledger = RedisLedger(chosen.redis_url, chosen.redis_timeout_s) if chosen.redis_url else None
    except ValueError as error:
        raise SettingsError(f"{PREFIX}REDIS_URL does not fit: {error}") from error
    return Limits(ledger, means, clock, metrics)


async def main(words: Sequence[str], environ: Mapping[str, str]) -> None:
    environ = {**environ, **_options(words)}
    chosen = settings.read(Settings, PREFIX, environ).of_worker()
    logs.configure("gateway", chosen.gateway_id)
    if chosen.supervises:
        await _supervise(chosen, environ)
    else:
        await _serve(chosen)


async def _serve(chosen: Settings) -> None:
    chosen = msgspec.structs.replace(chosen, most_connections=allowed_connections(chosen.most_connections))
    tracer = tracer_to(chosen.tracing, "gateway")
    stop_asked = asyncio.Event()
    if chosen.worker >= 0:
        when_orphaned(stop_asked.set)
    bus = await connect(
        BusOptions(
            url=chosen.nats_url, user=chosen.nats_user, password=chosen.nats_password, client_name=chosen.gateway_id
        )
    )
    try:
        assembly = assemble(chosen, bus, SystemClock(), tracer)
        settling = asyncio.create_task(_settle(assembly.following.full))
        await run_until_stopped("gateway", assembly.parts, stop_asked=stop_asked)
        settling.cancel()
    finally:
        await bus.close()


async def _settle(full: asyncio.Event) -> None:
    await full.wait()
    garbage.settle()


async def _supervise(chosen: Settings, environ: Mapping[str, str]) -> None:
    """Raises RuntimeError if a worker cannot be kept alive."""

    async def start_one(index: int) -> Process:
        return await start_worker(index, f"{PREFIX}WORKER", environ)

    workers = Workers(chosen.workers, start_one, SystemClock(), RestartPolicy(), chosen.drain_s + _LAST_WORD_S)
    stop_s = chosen.drain_s + 2 * _LAST_WORD_S
    await run_until_stopped("gateway", (workers,), stop_deadline_s=stop_s, stop_asked=workers.ended)
    if workers.failed:
        raise RuntimeError("a worker ended again and again")


def _options(words: Sequence[str]) -> dict[str, str]:
    """`--workers N` for whoever starts it by hand. Ends the program with a usage line for anything else."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway", allow_abbrev=False)
    parser.add_argument("--workers", metavar="N", help=f"processes behind the one port, as {PREFIX}WORKERS")
    given = parser.parse_args(words)
    return {} if given.workers is None else {f"{PREFIX}WORKERS": given.workers}


if __name__ == "__main__":
    run_main(main(sys.argv[1:], os.environ))
