"""`python -m services.registry`: wiring, and nothing else."""

from __future__ import annotations

import os

import msgspec
from fastapi import FastAPI

from services.registry import policies
from services.registry.adapters import Adapters
from services.registry.aliasing import Aliasing
from services.registry.announcements import Announcements
from services.registry.app import Registry
from services.registry.base_models import BaseModels
from services.registry.customers import Customers
from services.registry.deployments import Deployments
from services.registry.evaluations import Evaluations
from services.registry.fleet import Fleet, FleetPolicy
from services.registry.guarding import Guarding, GuardPolicy
from services.registry.http.door import build_door
from services.registry.io.changes import Changes
from services.registry.io.database import Database, DatabasePolicy, DatabaseUrlError
from services.registry.io.meters import Meters
from services.registry.io.weights import WeightsSources
from services.registry.moving import moving
from services.registry.registrations import RegistrationPolicy, Registrations, Shelf
from services.registry.relay import Relay, RelayPolicy
from services.registry.residency import Residencies
from services.registry.settings import PREFIX, Settings
from services.registry.traffic import TELL_S, Traffic
from services.registry.uploads import UploadPolicy, Uploads
from services.registry.usage import Usage
from services.registry.usage_intake import PRUNE_S, UsageIntake
from services.registry.wanted import Wanted
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
    meters = Meters(metrics)
    database, store = _database(settings), _store(settings)
    fleet = Fleet(bus, _fleet_policy(settings))
    registrations = Registrations(
        database,
        Shelf(sources=WeightsSources(store, settings.weights_from, _buckets(settings)), store=store),
        clock,
        RegistrationPolicy(
            largest_file_bytes=settings.largest_file_bytes, evaluation_deadline_s=settings.evaluation_deadline_s
        ),
        meters,
    )
    relay = Relay(bus, database, clock, _relay_policy(settings), meters)
    uploads = Uploads(store, clock, _upload_policy(settings))
    intake = UsageIntake(bus, database, clock, meters, settings.usage_keep_s)
    aliasing = Aliasing(database, clock, Residencies(fleet, clock, policies.residency(settings)))
    moves = moving(database, fleet, aliasing, clock, settings.retrain_deadline_s)
    registry = Registry(
        registrations=registrations,
        adapters=Adapters(database, clock),
        aliasing=aliasing,
        customers=Customers(database, clock),
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
        relay,
        Evaluations(database, fleet, clock, policies.evaluation(settings), meters),
        Announcements(bus, registrations, meters, database.changes),
        *_deploying(settings, database, fleet, aliasing, clock),
        periodically(clock, settings.reconcile_s, relay.ask_reconcile),
        periodically(clock, settings.migration_sweep_s, moves.sweep.turn),
        intake,
        periodically(clock, PRUNE_S, intake.prune),
        periodically(clock, TELL_S, Traffic(bus, database, clock).tell),
        periodically(clock, settings.outbox_look_s, relay.look),
        periodically(clock, PRUNE_UPLOADS_S, uploads.prune),
    )
    return Assembly(registry=registry, parts=parts, door=build_door(registry))


def _deploying(
    settings: Settings, database: Database, fleet: Fleet, aliasing: Aliasing, clock: Clock
) -> tuple[Part, ...]:
    """What deploys by itself, watches over it, and clears up behind it."""
    guarding = Guarding(database, aliasing, fleet, clock, GuardPolicy(probe_s=settings.guard_probe_s))
    wanted = Wanted(database, clock, settings.keep_warm_s)
    return (
        Deployments(database, aliasing, clock, policies.deployment(settings)),
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


def _buckets(settings: Settings) -> dict[str, ObjectStore]:
    """Of the prefixes that weights may come from."""
    try:
        return {bucket: store_from_url(bucket, settings) for bucket in settings.weights_from.buckets}
    except ValueError as error:
        raise SettingsError(f"{PREFIX}WEIGHTS_PREFIXES does not fit: {error}") from error


def _fleet_policy(settings: Settings) -> FleetPolicy:
    return FleetPolicy(
        ask_timeout_s=settings.ask_timeout_s,
        load_timeout_s=settings.load_timeout_s,
        evaluate_timeout_s=settings.evaluate_timeout_s,
    )


def _upload_policy(settings: Settings) -> UploadPolicy:
    return UploadPolicy(
        largest_file_bytes=settings.largest_file_bytes,
        keep_parts_s=settings.keep_parts_s,
        keep_uploads_s=settings.keep_uploads_s,
    )


def _relay_policy(settings: Settings) -> RelayPolicy:
    return RelayPolicy(
        retry_s=settings.outbox_retry_s,
        batch_rows=settings.outbox_batch_rows,
        keep_published_s=settings.keep_published_s,
    )


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
