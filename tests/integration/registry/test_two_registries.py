"""Two registries on one PostgreSQL and one bus: the bus is told in one order, and either tells what the other left."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.registry.io import customer_rows
from services.registry.io.changes import Changes
from services.registry.io.database import Database
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.runtime.clock import ManualClock
from tests.support.postgres import Postgres
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard, eventually, value_is
from tests.support.registry_world import World

ROUNDS = 20
LOOK_S = 5.0


@pytest.fixture
async def shared_place(postgres: Postgres, tmp_path: Path) -> Place:
    return Place(tmp_path, await postgres.new_database())


@pytest.fixture
async def both(shared_place: Place) -> AsyncIterator[tuple[World, World]]:
    async with shared_place.registry() as first, shared_place.registry() as second:
        await first.prepare()
        yield first, second


async def test_registries_that_start_at_once_migrate_once(postgres: Postgres) -> None:
    url = await postgres.new_database(migrated=False)
    databases = [Database(url, Changes()) for _ in range(3)]
    await asyncio.gather(*(database.start() for database in databases))
    for database in databases:
        async with database.read() as connection:
            assert await customer_rows.tenants(connection) == []
        await database.stop()


async def test_values_reach_the_bus_in_the_order_in_which_both_committed_them(
    shared_place: Place, both: tuple[World, World]
) -> None:
    weights: list[float] = []

    async def on_change(change: Any) -> None:
        weights.append(change.value.weight)

    gateway = shared_place.broker.connect("gateway")
    await gateway.state(catalog.TENANT).watch(on_change, "acme")
    for weight in range(2, 2 + ROUNDS):
        await both[weight % 2].admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": weight})
    await eventually(lambda: answered(bool(weights) and weights[-1] == 1.0 + ROUNDS))
    assert weights == sorted(weights)


async def test_writers_of_both_leave_the_bus_with_what_the_database_says(
    shared_place: Place, both: tuple[World, World]
) -> None:
    posts = [
        one.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": 1 + 2 * at + number})
        for at in range(ROUNDS)
        for number, one in enumerate(both)
    ]
    assert {answer.status_code for answer in await asyncio.gather(*posts)} == {200}
    [kept] = (await both[0].admin.get("/internal/tenants")).json()["tenants"]
    gateway = shared_place.broker.connect("gateway")
    await value_is(gateway, catalog.TENANT, "acme", lambda found: found is not None and found.weight == kept["weight"])


async def test_c38_each_fact_is_told_once_whoever_registered(shared_place: Place, both: tuple[World, World]) -> None:
    verified = await Heard().follow(shared_place.broker.connect("pipeline"), catalog.ADAPTER_VERIFIED)
    announced = [both[0].announce(f"v{at}", seed=at) for at in range(6)]
    answers = await asyncio.gather(*(both[at % 2].post(one) for at, one in enumerate(announced)))
    assert {answer.status_code for answer in answers} == {201}
    told = [message.adapter_id for message in await verified.first(6)]
    assert sorted(told) == [one.adapter_id for one in announced]


async def test_one_id_announced_to_both_at_once_is_one_adapter(both: tuple[World, World]) -> None:
    announced = both[0].announce("v1")
    answers = await asyncio.gather(*(one.post(announced) for one in both))
    assert sorted(answer.status_code for answer in answers) == [200, 201]


async def test_an_adapter_that_both_take_up_is_evaluated_once(shared_place: Place) -> None:
    async with shared_place.registry() as first:
        await first.prepare()
        await first.post(first.announce("v1"))
        await first.reached("v1", "evaluating")
        async with shared_place.registry() as second:
            [replica] = await shared_place.replicas("replica-a")
            await first.reached("v1", "active")
            assert len((await second.admin.get("/internal/adapters/v1")).json()["evaluations"]) == 1
    assert len(replica.asked) == 1


async def test_what_a_killed_registry_left_is_told_by_the_one_that_lives(shared_place: Place) -> None:
    """It looks now and then: nobody restarts, and nobody else commits anything."""
    clock = ManualClock()
    async with shared_place.registry(clock=clock) as here:
        await ready(here)
        words = ("-m", "tests.support.dying_registry", str(shared_place.folder), shared_place.database_url)
        process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=Path(__file__).parents[3])
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL
        bucket = shared_place.broker.connect("gateway").state(catalog.TENANT)
        assert await bucket.get("acme") is None

        async def told() -> bool:
            await clock.advance(LOOK_S)
            change = await bucket.get("acme")
            return change is not None and change.value == TenantRecord(tenant_id="acme", weight=3.0)

        await eventually(told)


async def ready(here: World) -> None:
    async def is_ready() -> bool:
        return (await here.admin.get("/readyz")).status_code == 200

    await eventually(is_ready)


async def answered(value: bool) -> bool:
    return value
