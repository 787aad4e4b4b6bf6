"""`python -m services.registry`: wiring, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
from fastapi import FastAPI

from services.registry import policies
from services.registry.accounting.traffic import TELL_S, Traffic
from services.registry.accounting.usage import Usage
from services.registry.accounting.usage_intake import PRUNE_S, UsageIntake
from services.registry.adapters import Adapters
from services.registry.app import Registry
from services.registry.attendance import Attendance, Means, Work
from services.registry.base_migration.base_models import BaseModels
from services.registry.base_migration.moving import moving
from services.registry.customers import Customers
from services.registry.deployment.aliasing import Aliasing
from services.registry.deployment.deployments import Deployments
from services.registry.deployment.guarding import Guarding, GuardPolicy
from services.registry.deployment.residency import Residencies
from services.registry.deployment.wanted import Wanted
from services.registry.fleet import Fleet
from services.registry.gating.evaluating import evaluating
from services.registry.gating.evaluations import Evaluations
from services.registry.gating.gate import Gate
from services.registry.gating.questions import Questions
from services.registry.gating.verdicts import Verdicts
from services.registry.http.door import build_door
from services.registry.io.changes import Changes
from services.registry.io.database import Database, DatabasePolicy, DatabaseUrlError
from services.registry.io.drafts import Drafts
from services.registry.io.inspected import Inspected
from services.registry.io.meters import Meters
from services.registry.io.weights import WeightsSources
from services.registry.limiting import Limiting
from services.registry.precedence import Precedence
from services.registry.registration.announcements import Announcements
from services.registry.registration.complaints import Complaints
from services.registry.registration.deadlines import Deadlines
from services.registry.registration.hindrances import Hindrances
from services.registry.registration.lost_bytes import LostBytes
from services.registry.registration.registrations import Registrations
from services.registry.registration.resumption import Resumption
from services.registry.registration.unclaimed import Unclaimed
from services.registry.registration.uploads import Incoming, Uploads
from services.registry.registration.verifications import Verifications
from services.registry.relay import Relay
from services.registry.settings import PREFIX, Settings
from services.registry.turns import Turns
from shared.bus.nats import BusOptions, connect
from shared.bus.port import Bus
from shared.runtime import logs
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.http_server import HttpServer
from shared.runtime.metrics import Metrics
from shared.runtime.service import Part, periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError, read
from shared.store.open import store_from_url
from shared.store.port import ObjectStore

DRAIN_S = 10.0
PRUNE_UPLOADS_S = 3600.0


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """A registry and its parts in the order to start them; the door serves once the rest runs."""

    registry: Registry
    parts: tuple[Part, ...]
    door: FastAPI


def assemble(settings: Settings, bus: Bus, clock: Clock, metrics: Metrics) -> Assembly:
    """Raises SettingsError for a URL that names nothing."""
    database, store, meters = _database(settings), _store(settings), Meters(metrics)
    fleet, (sources, uploads) = Fleet(bus, policies.fleet(settings)), _incoming(settings, database, store, clock)
    verifications = Verifications(database, sources, clock, policies.registration(settings), meters)
    registrations = Registrations(database, verifications, clock, policies.registration(settings), meters)
    verdicts, precedence = Verdicts(database, clock, meters, policies.verdicts(settings)), Precedence()
    gate, means = Gate(database, Questions(fleet)), Means(database, clock, Hindrances())
    resumption = Resumption(database, verifications, means.hindrances)
    evaluations = Evaluations(database, gate, verdicts, means.hindrances)
    deadlines = Deadlines(database, clock, means.hindrances, meters, settings.evaluation_deadline_s)
    relay = Relay(bus, database, clock, policies.relay(settings), meters)
    intake = UsageIntake(bus, database, clock, meters, settings.usage_keep_s)
    aliasing = Aliasing(database, clock, Residencies(fleet, clock, policies.residency(settings)))
    deployments = Deployments(database, aliasing, clock, settings.deployment_deadline_s)
    moves = moving(database, fleet, aliasing, clock, settings.retrain_deadline_s)
    registry = Registry(
        registrations=registrations,
        precedence=precedence,
        adapters=Adapters(database, clock),
        evaluating=evaluating(database, verdicts, clock),
        aliasing=aliasing,
        customers=Customers(database, clock),
        limiting=Limiting(database, clock),
        base_models=BaseModels(database, clock),
        uploads=uploads,
        fleet=fleet,
        usage=Usage(database, clock, settings.usage_keep_s),
        moving=moves,
        relay=relay,
        database=database,
        bus=bus,
        metrics=metrics,
        admin_key=settings.admin_key,
    )
    parts = (
        database,
        *_telling(settings, relay, clock),
        verifications,
        registrations,
        *_attending(settings, means, precedence, (resumption, evaluations, deployments)),
        periodically(clock, settings.deadline_sweep_s, deadlines.sweep),
        Announcements(bus, registrations, precedence, meters, database.changes),
        Complaints(bus, LostBytes(database, store, clock, meters)),
        *_guarding(settings, database, fleet, aliasing, clock),
        periodically(clock, settings.migration_sweep_s, moves.sweep.turn),
        *_counting(intake, Traffic(bus, database, clock), clock),
        *_receiving(uploads, clock),
    )
    return Assembly(registry=registry, parts=parts, door=build_door(registry))


def _receiving(uploads: Uploads, clock: Clock) -> tuple[Part, ...]:
    """What takes uploads, and forgets those that nobody came back for."""
    return uploads, periodically(clock, PRUNE_UPLOADS_S, uploads.prune)


def _telling(settings: Settings, relay: Relay, clock: Clock) -> tuple[Part, ...]:
    """What tells the bus of every change, and looks whether it still knows."""
    return (
        relay,
        periodically(clock, settings.reconcile_s, relay.ask_reconcile),
        periodically(clock, settings.outbox_look_s, relay.look),
    )


def _counting(intake: UsageIntake, traffic: Traffic, clock: Clock) -> tuple[Part, ...]:
    """What takes usage in, and tells placement who is busy."""
    return intake, periodically(clock, PRUNE_S, intake.prune), periodically(clock, TELL_S, traffic.tell)


def _attending(settings: Settings, means: Means, precedence: Precedence, works: tuple[Work, ...]) -> Iterator[Part]:
    """What takes adapters further by itself; now and then it looks for what another registry left behind."""
    for work in works:
        turns = Turns(policies.turns(settings, gives_way=work.gives_way), precedence, means.clock)
        attendance = Attendance(work, turns, policies.attendance(settings), means)
        yield attendance
        yield periodically(means.clock, settings.reconcile_s, attendance.look_again)


def _guarding(
    settings: Settings, database: Database, fleet: Fleet, aliasing: Aliasing, clock: Clock
) -> tuple[Part, ...]:
    """What watches over deployments, and clears up behind them."""
    guarding = Guarding(database, aliasing, fleet, clock, GuardPolicy(probe_s=settings.guard_probe_s))
    wanted = Wanted(database, clock, settings.keep_warm_s)
    return (
        periodically(clock, settings.guard_check_s, guarding.check),
        periodically(clock, settings.wanted_sweep_s, wanted.sweep),
        periodically(clock, settings.reconcile_s, wanted.bound),
    )


def _database(settings: Settings) -> Database:
    try:
        policy = DatabasePolicy(connections=settings.database_connections, timeout_s=settings.database_timeout_s)
        return Database(settings.database_url, Changes(), policy)
    except DatabaseUrlError as error:
        raise SettingsError(f"{PREFIX}DATABASE_URL does not fit: {error}") from error


def _store(settings: Settings) -> ObjectStore:
    try:
        return store_from_url(settings.store_url, settings)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}STORE_URL does not fit: {error}") from error


def _incoming(
    settings: Settings, database: Database, store: ObjectStore, clock: Clock
) -> tuple[WeightsSources, Uploads]:
    """What takes weights in: announced where they lie, or sent."""
    incoming = Incoming(store=store, inspected=Inspected(), drafts=Drafts(policies.drafts_folder(settings)))
    sources = WeightsSources(store, incoming.inspected, settings.weights_from, _buckets(settings))
    return sources, Uploads(incoming, Unclaimed(database, store, clock), clock, policies.uploads(settings))


def _buckets(settings: Settings) -> dict[str, ObjectStore]:
    """Of the prefixes that weights may come from."""
    try:
        return {bucket: store_from_url(bucket, settings) for bucket in settings.weights_from.buckets}
    except ValueError as error:
        raise SettingsError(f"{PREFIX}WEIGHTS_PREFIXES does not fit: {error}") from error


async def main() -> None:
    settings = read(Settings, PREFIX, os.environ)
    logs.configure("registry", settings.instance)
    options = BusOptions(
        url=settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        client_name=settings.instance,
    )
    bus = await connect(options)
    try:
        assembly = assemble(settings, bus, SystemClock(), Metrics("registry"))
        server = HttpServer(assembly.door, (settings.host, settings.port), DRAIN_S)
        await run_until_stopped("registry", [*assembly.parts, server])
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
