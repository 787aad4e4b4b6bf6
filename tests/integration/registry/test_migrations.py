"""The schema: what the migrations lead to, on both databases, with data in it, up and down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from services.registry.core import lifecycle
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, customer_rows, outbox_rows
from services.registry.io.changes import Changes
from services.registry.io.database import _MIGRATIONS, Database
from services.registry.io.notes import removal
from services.registry.io.schema import METADATA
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.messages.operations import Evaluation
from tests.support.adapter_files import announcement, file_of
from tests.support.postgres import Postgres
from tests.support.stored_adapters import verified


@pytest.fixture
async def empty_url(request: pytest.FixtureRequest, database_url: str) -> str:
    """Of a database without any table: the template of PostgreSQL's has them all."""
    if database_url.startswith("sqlite"):
        return database_url
    postgres: Postgres = request.getfixturevalue("postgres")
    return await postgres.new_database(migrated=False)


def moved(direction: str, revision: str) -> Any:
    """To be run in a connection: Alembic's upgrade or downgrade."""

    def move(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.attributes["connection"] = connection
        getattr(command, direction)(config, revision)

    return move


def lifecycle_moves() -> tuple[Move, Move]:
    return lifecycle.begin(None, 1.0, 600.0), lifecycle.verify("every check passed", 1.0, 600.0)


def adapter(**said: Any) -> StoredAdapter:
    return msgspec.structs.replace(verified(announcement(file_of(), adapter_id="v1")), **said)


async def test_they_lead_to_the_tables_that_the_code_describes(empty_url: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        return list(compare_metadata(MigrationContext.configure(connection), METADATA))

    database = Database(empty_url, Changes())
    await database.start()
    async with database.write() as connection:
        assert await connection.run_sync(differences) == []
    await database.stop()


async def test_starting_again_keeps_what_is_there(empty_url: str) -> None:
    for expected in (0, 1):
        database = Database(empty_url, Changes())
        await database.start()
        async with database.write() as connection:
            assert len(await customer_rows.tenants(connection)) == expected
            await customer_rows.save_tenant(connection, TenantRecord(tenant_id="acme"), 1.0)
        await database.stop()


async def test_adapters_of_the_first_schema_live_on_and_can_go_back(empty_url: str) -> None:
    """Down to the first revision and up again, twice: what the first schema has a place for is never lost."""
    before, database = adapter(fingerprint="b/bfloat16/f1"), Database(empty_url, Changes())
    await database.start()
    async with database.write() as connection:
        await customer_rows.save_tenant(connection, TenantRecord(tenant_id="acme"), 1.0)
        await adapter_rows.save(connection, before, lifecycle_moves())
        await outbox_rows.append(connection, [removal(catalog.TENANT, "x")], 1.0)
    for _ in range(2):
        async with database.write() as connection:
            await connection.run_sync(moved("downgrade", "0001"))
            [row] = await connection.execute(text("SELECT adapter_id, fingerprint FROM adapters"))
            assert tuple(row) == ("v1", "b/bfloat16/f1")
        await database.start()
        async with database.read() as connection:
            assert await adapter_rows.find(connection, "v1") == before
            assert [move.state for move in await adapter_rows.history(connection, "v1")] == ["registered", "verified"]
            assert len(await outbox_rows.pending(connection, 10)) == 1
    await database.stop()


async def test_outputs_that_were_not_finite_before_it_had_a_column_still_are_not(database_url: str) -> None:
    """Else a person could override the evaluation that found them."""
    found = Evaluation(
        adapter_id="v1", digest="d", replica_id="replica-a", passed=False, engine_build="b", largest_logprob_change=0.0,
        reason="an output with this adapter is not finite", fingerprint="b/f1", finite=False,
    )  # fmt: skip
    no_effect = msgspec.structs.replace(found, reason="no effect", finite=True)
    database = Database(database_url, Changes())
    await database.start()
    async with database.write() as connection:
        await customer_rows.save_tenant(connection, TenantRecord(tenant_id="acme"), 1.0)
        await adapter_rows.save(connection, adapter(), lifecycle_moves())
        for one in (found, no_effect):
            await adapter_rows.add_evaluation(connection, one, 1.0)
        await connection.run_sync(moved("downgrade", "0002"))
        await connection.run_sync(moved("upgrade", "head"))
        assert await adapter_rows.evaluations(connection, "v1") == [found, no_effect]
    await database.stop()


async def test_all_the_way_down_nothing_is_left(empty_url: str) -> None:
    database = Database(empty_url, Changes())
    await database.start()
    async with database.write() as connection:
        await connection.run_sync(moved("downgrade", "base"))
        left = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    assert left == ["alembic_version"]
    await database.start()
    await database.check()
    await database.stop()


def test_every_step_says_how_to_go_back() -> None:
    steps = [file for file in (Path(_MIGRATIONS) / "versions").glob("*.py") if file.stem != "__init__"]
    assert len(steps) >= 3
    for step in steps:
        assert "def downgrade() -> None:\n    pass" not in step.read_text()
