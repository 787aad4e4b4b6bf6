"""No statement of the registry reads or sorts a whole table that grows, on either database.

Which statements there are is overheard from every other test of this folder that ran before, and from what is asked
here; each is then explained in a database with thousands of rows. Alone, this module explains what is asked here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from sqlalchemy import text

from loadtest.registry_fill import Filling, Volume
from loadtest.registry_plans import plan_of, sizes_of
from loadtest.registry_questions import QUESTIONS, Keys
from loadtest.registry_statements import Statements
from services.registry.io.changes import Changes
from services.registry.io.database import Database, DatabasePolicy

VOLUME = Volume(adapters=4_000, usage=20_000)
PLANTED = {
    "usage.of_adapter": ["ix_usage_adapter_id"],
    "outbox.pending": ["ix_outbox_pending", "ix_outbox_published_at_s"],
    "adapters.of_status": ["ix_adapters_status"],
    "usage.counted": ["ix_adapter_stats_window_start"],
}
"""Questions, and the indexes without which they have no good answer."""

OF_THIS_FLEET: dict[str, str] = {
    "io.outbox_rows.prune": "deletes what is old, and by the clock of the tests everything here is",
    "io.usage_ledger.prune": "deletes what is old, and by the clock of the tests everything here is",
    "io.pointer_rows.held": "walks the adapters of one base, which here are all",
}
"""Whose statements read everything here because that is what they ask for."""
MANY_KEYS = 100
"""A statement with more names most of so small a fleet: reading everything is right here, and nowhere else."""
ON_PURPOSE: dict[str, str] = {
    "io.pointer_rows._naming": "every alias of a base model that is to be retired",
    "io.pointer_rows._adapters": "every adapter of a base model that is to be retired",
    "io.migration_rows.items": "every adapter of a move that goes on",
    "io.customer_rows.keys": "all of them, when buckets are compared",
    "io.customer_rows.tenants": "all of them, when buckets are compared",
    "io.wanted_rows.bound_unnamed": "once, at the start",
    "io.wanted_rows.to_deploy": "once, at the start",
}
"""Who reads everything, in a statement without a LIMIT, and why that is right."""


@pytest.fixture
async def full(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, Changes(), DatabasePolicy(timeout_s=60.0))
    await database.start()
    async with database.write() as connection:
        await Filling(connection, VOLUME).everything()
    yield database
    await database.stop()


async def faults_in(database: Database, statements: Statements) -> dict[str, tuple[str, ...]]:
    """By sender and statement."""
    found: dict[str, tuple[str, ...]] = {}
    async with database.write() as connection:
        sizes = await sizes_of(connection)
        for one in statements.found.values():
            if one.dialect != connection.dialect.name or len(one.parameters) > MANY_KEYS or one.by in OF_THIS_FLEET:
                continue
            plan = await plan_of(connection, one.text, one.parameters, sizes)
            if plan.faults and not (one.by in ON_PURPOSE and " LIMIT " not in one.text):
                found[f"{one.by}: {one.text}"] = plan.faults
    return found


async def ask_all(database: Database, statements: Statements) -> None:
    """With these parameters, whatever other tests sent in the same words: all usage since 1970 is right for a handful
    of records, and nowhere else."""
    before, statements.found = statements.found, {}
    draws = Random(0)
    for question in QUESTIONS:
        async with database.read() as connection:
            await question.ask(connection, Keys(VOLUME, draws))
    statements.found = before | statements.found


async def test_every_statement_follows_an_index(full: Database, statements: Statements) -> None:
    await ask_all(full, statements)
    assert len(statements.found) >= len(QUESTIONS)
    found = await faults_in(full, statements)
    assert not found, "\n".join(f"{'; '.join(faults)}: {asked}" for asked, faults in found.items())


async def test_an_index_that_is_missing_is_noticed(full: Database, statements: Statements) -> None:
    questions = {question.name: question for question in QUESTIONS}
    for name, indexes in PLANTED.items():
        async with full.write() as connection:
            for index in indexes:
                await connection.execute(text(f"DROP INDEX {index}"))
        before = dict(statements.found)
        statements.found.clear()
        async with full.read() as connection:
            await questions[name].ask(connection, Keys(VOLUME, Random(1)))
        found = await faults_in(full, statements)
        statements.found = before | statements.found
        assert found, name
