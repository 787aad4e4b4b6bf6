"""What the registry has committed is told to the bus, whatever dies in between."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from services.registry.io.tables import OUTBOX
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.desired import AliasRecord, TenantRecord
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.runtime.clock import ManualClock
from tests.support.adapter_files import BASE
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard, eventually, value_is
from tests.support.registry_world import World, world

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"


async def ready(here: World) -> None:
    async def is_ready() -> bool:
        return (await here.admin.get("/readyz")).status_code == 200

    await eventually(is_ready)


# -- the outbox ----------------------------------------------------------------------------------------


async def test_what_was_committed_before_a_crash_is_told_by_the_next_start(place: Place) -> None:
    verified = await Heard().follow(place.broker.connect("pipeline"), catalog.ADAPTER_VERIFIED)
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        announced = here.announce("v1")
        assert (await here.post(announced)).status_code == 201
    assert verified.messages == []
    async with place.registry():
        [found] = await verified.first()
        assert found.digest == announced.checksum
        worker = place.broker.connect("replica_worker")
        await value_is(worker, catalog.ADAPTER, key_of("v1"), lambda record: record is not None)


async def test_a_crash_between_publishing_and_marking_repeats_the_same_message(place: Place) -> None:
    """The second publication has the first one's message id, so that the bus stores it once."""
    async with place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await ready(here)
        async with here.registry.database.write() as connection:
            await connection.exec_driver_sql("UPDATE outbox SET published_at_s = NULL")
    verified = await Heard().follow(place.broker.connect("pipeline"), catalog.ADAPTER_VERIFIED)
    async with place.registry() as here:
        await ready(here)
        await here.post(here.announce("v2", seed=2))
        assert [message.adapter_id for message in await verified.first(2)] == ["v1", "v2"]


async def test_kill_9_between_commit_and_publish_loses_nothing(place: Place) -> None:
    """A real process that kills itself the moment it would publish."""
    words = ("-m", "tests.support.dying_registry", str(place.folder), place.database_url)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=Path(__file__).parents[3])
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    async with place.registry():
        gateway = place.broker.connect("gateway")
        await value_is(
            gateway, catalog.TENANT, "acme", lambda tenant: tenant == TenantRecord(tenant_id="acme", weight=3.0)
        )


async def test_values_arrive_in_the_order_they_were_committed(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        for weight in range(1, 20):
            await here.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": weight})
        weights: list[float] = []
        gateway = place.broker.connect("gateway")

        async def on_change(change: Any) -> None:
            weights.append(change.value.weight)

        await gateway.state(catalog.TENANT).watch(on_change)
        place.heal()
        await value_is(gateway, catalog.TENANT, "acme", lambda tenant: tenant is not None and tenant.weight == 19)

        async def all_seen() -> bool:
            return bool(weights) and weights[-1] == 19.0

        await eventually(all_seen)
        assert weights == sorted(weights)


async def test_a_row_that_no_bus_takes_does_not_hold_up_the_others(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        async with here.registry.database.write() as connection:
            for channel, payload in (
                ("no.such.channel", "{}"),
                ("adapter.verified", "{"),
                ("tenant", '{"tenant_id": "x"}'),
            ):
                row = {"message_id": "m", "channel": channel, "ids": [], "payload": payload, "created_at_s": 0.0}
                await connection.execute(insert(OUTBOX).values(row))
        await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "globex", lambda tenant: tenant is not None)


async def test_the_bus_may_be_away_while_operators_work(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await ready(here)
        place.cut()
        assert (await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})).status_code == 201
        place.heal()
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "globex", lambda tenant: tenant is not None)


async def test_a_post_is_told_as_the_fact_that_an_event_would_have_been(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        told = await Heard().follow(place.broker.connect("registry"), catalog.ADAPTER_REGISTERED)
        posted, published = here.announce("v1"), here.announce("v2", seed=2)
        await here.post(posted)
        await told.first()
        await place.broker.connect("pipeline").publish(catalog.ADAPTER_REGISTERED, published)
        await here.reached("v2", "evaluating")
        await here.post(here.announce("v3", seed=3))
        assert [message.adapter_id for message in await told.first(3)] == ["v1", "v2", "v3"]
        assert told.messages[0] == posted

        async def counted() -> bool:
            """Once each, although the registry hears of its own POSTs again."""
            text = (await here.admin.get("/metrics")).text
            return all(f'registrations_total{{outcome="{became}"}} {count}' in text for became, count in expected)

        expected = (("registered", 3.0), ("known", 2.0))
        await eventually(counted)


# -- reconciliation ------------------------------------------------------------------------------------


async def test_buckets_that_lost_or_kept_too_much_are_repaired_at_the_start(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.ALIAS, key_of(ALIAS), lambda record: record is not None)
        right: AliasRecord = (await gateway.state(catalog.ALIAS).get(key_of(ALIAS))).value  # type: ignore[union-attr,assignment]
    writer = place.broker.connect("registry")
    await writer.state(catalog.ALIAS).delete(key_of(ALIAS))
    await writer.state(catalog.TENANT).put(TenantRecord(tenant_id="acme", weight=99.0), "acme")
    await writer.state(catalog.TENANT).put(TenantRecord(tenant_id="ghost"), "ghost")
    async with place.registry() as here:
        await ready(here)
        assert (await gateway.state(catalog.ALIAS).get(key_of(ALIAS))).value == right  # type: ignore[union-attr]
        tenants = {change.value for change in await gateway.state(catalog.TENANT).entries()}
        assert tenants == {TenantRecord(tenant_id="acme", weight=1.0)}


async def test_buckets_are_compared_again_and_again(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await ready(here)
        await place.broker.connect("registry").state(catalog.TENANT).delete("acme")
        await clock.advance(301.0)
        gateway = place.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "acme", lambda tenant: tenant is not None)


async def test_it_is_not_ready_before_the_bus_knows_everything(place: Place) -> None:
    async with place.registry() as here:
        await ready(here)
        await here.prepare()
    place_bus = place.connect

    async def connect_broken(service: str) -> Bus:
        bus = await place_bus(service)
        place.cut()
        return bus

    async with world(place.folder, connect_broken, database_url=place.database_url) as here:
        answer = await here.admin.get("/readyz")
        assert (answer.status_code, "has not been told" in answer.json()["error"]["message"]) == (503, True)
        place.heal()
        await ready(here)


# -- evaluations ---------------------------------------------------------------------------------------


async def test_an_evaluation_is_resumed_after_a_restart_with_the_deadline_it_had(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await here.post(here.announce("v1", alias=ALIAS))
        before = await here.reached("v1", "evaluating")
    assert before["deadline_s"] == 600.0
    await clock.advance(500.0)
    await place.replicas("replica-a")
    async with place.registry(clock=clock) as here:
        after = await here.reached("v1", "active")
        assert [move["state"] for move in after["history"]] == ["registered", "verified", "evaluating", "active"]


async def test_a_deadline_that_passed_while_it_was_away_is_kept(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await here.reached("v1", "evaluating")
    await clock.advance(601.0)
    async with place.registry(clock=clock) as here:
        assert "before its deadline" in (await here.reached("v1", "failed"))["reason"]
