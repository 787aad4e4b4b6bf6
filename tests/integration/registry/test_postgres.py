"""What only PostgreSQL can do to a registry: be elsewhere, refuse, be slow, die, and belong to several at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, make_url, text

from services.registry.io import customer_rows
from services.registry.io.changes import Changes
from services.registry.io.database import Collision, Database, DatabasePolicy, DatabaseUnavailable, Unstorable
from services.registry.io.tables import TENANTS
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from tests.support.postgres import Postgres
from tests.support.registry_errors import error_of
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually, value_is

HASTY = DatabasePolicy(connections=2, timeout_s=0.3)


@pytest.fixture
async def url(postgres: Postgres) -> str:
    return await postgres.new_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url, Changes())
    yield database
    await database.stop()


@pytest.fixture
async def hasty(url: str) -> AsyncIterator[Database]:
    database = Database(url, Changes(), HASTY)
    yield database
    await database.stop()


async def add_tenant(database: Database, tenant_id: str) -> None:
    async with database.write() as connection:
        await connection.execute(insert(TENANTS).values(tenant_id=tenant_id, weight=1.0, created_at_s=0.0))


async def tenants(database: Database) -> set[str]:
    async with database.read() as connection:
        return {tenant.tenant_id for tenant in await customer_rows.tenants(connection)}


# -- what it says, in our words ------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["a\0b", "x" * 64])
async def test_a_text_that_its_column_cannot_hold_is_unstorable(database: Database, wrong: str) -> None:
    with pytest.raises(Unstorable) as caught:
        await add_tenant(database, wrong)
    assert "asyncpg" not in str(caught.value)
    assert await tenants(database) == set()


async def test_what_cannot_be_kept_cannot_be_asked_for_either(place_on: Place) -> None:
    async with place_on.registry() as here:
        assert error_of(await here.admin.get("/internal/adapters/a%00b"), 422)["code"] == "unstorable"


@pytest.mark.parametrize("state", ["40001", "40P01", "53300", "53100", "55P03", "57P01", "57P03", "25006", "08006"])
async def test_what_may_go_through_later_is_unavailable(database: Database, state: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="planted"):
        async with database.write() as connection:
            await connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '{state}'; END $$")
    await add_tenant(database, "acme")


async def test_a_key_that_exists_is_a_collision_in_plain_words(database: Database) -> None:
    await add_tenant(database, "acme")
    with pytest.raises(Collision, match=r'^duplicate key value violates unique constraint "pk_tenants"$'):
        await add_tenant(database, "acme")


async def test_a_fault_of_ours_is_not_taken_for_a_trouble_of_the_server(database: Database) -> None:
    with pytest.raises(Exception, match="no_such_table") as caught:
        async with database.read() as connection:
            await connection.exec_driver_sql("SELECT 1 FROM no_such_table")
    assert not isinstance(caught.value, DatabaseUnavailable)


@pytest.mark.parametrize(
    ("wrong", "reason"), [("postgres:///x?host=/no/such/folder", "does not answer"), ("nothing", "nothing")]
)
async def test_a_start_without_a_database_says_which(postgres: Postgres, wrong: str, reason: str) -> None:
    url = f"postgresql+asyncpg{wrong.removeprefix('postgres')}" if "://" in wrong else postgres.server.url(wrong)
    database = Database(url, Changes())
    with pytest.raises(DatabaseUnavailable, match=reason):
        await database.start()
    await database.stop()


# -- patience ------------------------------------------------------------------------------------------


async def test_a_statement_has_its_time_and_no_more(hasty: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        async with hasty.read() as connection:
            await connection.execute(text("SELECT pg_sleep(20)"))
    assert await tenants(hasty) == set()


async def test_a_writer_waits_for_another_registrys_only_so_long(database: Database, hasty: Database) -> None:
    async with database.write():
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await add_tenant(hasty, "acme")
        assert await tenants(hasty) == set()
    await add_tenant(hasty, "acme")


async def test_a_writer_sees_what_it_waited_for_whatever_is_the_servers_default(
    postgres: Postgres, url: str, database: Database
) -> None:
    """One that looks with the eyes of the moment when it began to wait would decide from what is over."""
    await postgres.say(f"ALTER DATABASE {make_url(url).database} SET default_transaction_isolation TO serializable")
    other = Database(url, Changes())
    waits = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    async def seen_by_the_other() -> list[str]:
        async with other.write() as connection:
            return [tenant.tenant_id for tenant in await customer_rows.tenants(connection)]

    async with database.write() as connection:
        waiting = asyncio.create_task(seen_by_the_other())

        async def it_waits() -> bool:
            return bool((await connection.execute(waits)).scalar_one())

        await eventually(it_waits)
        await connection.execute(insert(TENANTS).values(tenant_id="acme", weight=1.0, created_at_s=0.0))
    assert await waiting == ["acme"]
    await other.stop()


async def test_who_finds_every_connection_busy_is_told_so(hasty: Database) -> None:
    async with hasty.read(), hasty.read():
        with pytest.raises(DatabaseUnavailable, match="busy"):
            await hasty.check()
    await hasty.check()


async def test_a_server_that_says_nothing_is_given_up(postgres: Postgres, hasty: Database) -> None:
    async with hasty.read() as connection:
        backend: int = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
    os.kill(backend, signal.SIGSTOP)
    os.kill(postgres.server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(DatabaseUnavailable):
            await hasty.check()
    finally:
        os.kill(postgres.server.pid, signal.SIGCONT)
        os.kill(backend, signal.SIGCONT)
    await eventually(lambda: answers(hasty))


async def answers(database: Database) -> bool:
    try:
        await database.check()
    except DatabaseUnavailable:
        return False
    return True


async def test_a_database_of_a_test_is_gone_when_a_later_one_gets_its_own(postgres: Postgres) -> None:
    database = Database(await postgres.new_database(), Changes(), HASTY)
    await database.check()
    postgres.let_go()
    await postgres.new_database()
    with pytest.raises(DatabaseUnavailable):
        await database.check()
    await database.stop()


# -- a server that goes and comes back -----------------------------------------------------------------


@pytest.fixture
def place_on(url: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"), url)


@pytest.mark.parametrize("kill", [False, True])
async def test_a_server_that_restarts_is_503_meanwhile_and_loses_nothing(
    postgres: Postgres, place_on: Place, kill: bool
) -> None:
    async with place_on.registry() as here:
        await here.prepare()
        postgres.server.kill() if kill else postgres.server.stop()
        try:
            refused = await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
            assert error_of(refused, 503)["code"] == "database_unavailable"
            assert refused.headers["retry-after"] == "1"
            assert "database" in error_of(await here.admin.get("/readyz"), 503)["message"]
        finally:
            postgres.server.start()
        assert (await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})).status_code == 201
        assert {one["tenant_id"] for one in (await here.admin.get("/internal/tenants")).json()["tenants"]} == {
            "acme",
            "globex",
        }
        gateway = place_on.broker.connect("gateway")
        await value_is(gateway, catalog.TENANT, "globex", lambda tenant: tenant == TenantRecord(tenant_id="globex"))


# -- several at once -----------------------------------------------------------------------------------


async def test_one_at_a_time_does_what_is_done_alone(database: Database, hasty: Database) -> None:
    async with database.alone("relay") as first, hasty.alone("relay") as second, hasty.alone("another") as third:
        assert (first, second, third) == (True, False, True)
    async with hasty.alone("relay") as after:
        assert after


async def test_who_fails_or_vanishes_is_alone_no_longer(url: str, database: Database) -> None:
    other = Database(url, Changes())
    with pytest.raises(RuntimeError, match="planted"):
        async with other.alone("relay"):
            raise RuntimeError("planted")
    gone = asyncio.create_task(hold(other))
    await eventually(lambda: taken(database))
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await other.stop()
    async with database.alone("relay") as granted:
        assert granted


async def hold(database: Database) -> None:
    async with database.alone("relay"):
        await asyncio.Event().wait()


async def taken(database: Database) -> bool:
    async with database.alone("relay") as granted:
        return not granted
