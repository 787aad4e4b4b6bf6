"""`python -m services.gateway`: the gateway's parts, put together and run until a signal."""

from __future__ import annotations

import os
import random
import secrets

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
from services.gateway.core.usage import UsageQueue
from services.gateway.following import Audience, Following
from services.gateway.io.descriptors import allowed_connections
from services.gateway.io.generation_route import GenerationRoute, RoutePolicy
from services.gateway.io.http import application
from services.gateway.io.limits_redis import RedisLedger
from services.gateway.io.meters import Meters, show_customers
from services.gateway.io.protocol import prompt_protocol
from services.gateway.limits import TURN_S, Limits, LimitsMeans
from services.gateway.post import Post
from services.gateway.records import Audit, Records
from services.gateway.replicas import Replicas
from services.gateway.routing import Routing
from services.gateway.settings import PREFIX, Settings
from services.gateway.telling import Telling
from services.gateway.usage import Usage
from shared.bus.nats import BusOptions, connect
from shared.bus.port import Bus
from shared.messages.usage import UsageRecord
from shared.runtime import logs, settings
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.http_server import HttpServer
from shared.runtime.metrics import Metrics
from shared.runtime.service import Part, periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError
from shared.runtime.tracing import NO_TRACER, Tracer, tracer_to
from shared.ttft_by_customer import TtftByCustomer

TICK_S = 0.1
REPORT_S = 1.0


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

    def leave(record: UsageRecord) -> None:
        usage.record(record)
        limits.settle(record)

    records = Records(audit, leave)
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
    draws = Draws(unique_id=lambda: secrets.token_hex(12), seed=lambda: secrets.randbits(63))
    gateway = Gateway(desk, audience, following, draws)
    policy = RoutePolicy(body=chosen.body, strategies=chosen.request_strategies)
    routes = {path: GenerationRoute(gateway, policy, parse) for path, parse in PARSERS.items()}
    app = application(gateway, routes, metrics)
    address, protocol = (chosen.host, chosen.port), prompt_protocol(chosen.connections)
    server = HttpServer(app, address, chosen.drain_s, protocol, conversations.shut_down)
    ticks = periodically(clock, TICK_S, gateway.tick)
    reports = periodically(clock, REPORT_S, gateway.report)
    telling = Telling(activity, post, clock)
    leases = periodically(clock, TURN_S, limits.turn)
    parts = (post, usage, telling, limits, leases, following, ticks, reports, server)
    return Assembly(following=following, server=server, parts=parts)


def _limits(chosen: Settings, gateway_id: str, clock: Clock, metrics: Metrics) -> Limits:
    """Raises SettingsError for a URL that names no Redis."""
    means = LimitsMeans(
        allowances=Allowances(gateway_id, LeasePolicy()), company=Company(gateway_id), wait_s=chosen.limits_wait_s
    )
    try:
        ledger = RedisLedger(chosen.redis_url, chosen.redis_timeout_s) if chosen.redis_url else None
    except ValueError as error:
        raise SettingsError(f"{PREFIX}REDIS_URL does not fit: {error}") from error
    return Limits(ledger, means, clock, metrics)


async def main() -> None:
    chosen = settings.read(Settings, PREFIX, os.environ)
    logs.configure("gateway", chosen.gateway_id)
    chosen = msgspec.structs.replace(chosen, most_connections=allowed_connections(chosen.most_connections))
    tracer = tracer_to(chosen.tracing, "gateway")
    bus = await connect(
        BusOptions(
            url=chosen.nats_url, user=chosen.nats_user, password=chosen.nats_password, client_name=chosen.gateway_id
        )
    )
    try:
        await run_until_stopped("gateway", assemble(chosen, bus, SystemClock(), tracer).parts)
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
