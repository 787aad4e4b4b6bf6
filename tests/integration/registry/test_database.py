"""The database keeps its promises, whichever it is: transactions are real, rows come back whole."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core import lifecycle, records
from services.registry.core.deployment.aliases import AliasState
from services.registry.core.deployment.guards import Guard
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, base_model_rows, customer_rows, outbox_rows
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.io.database import Collision, Database, Unstorable
from services.registry.io.notes import fact, message_of, removal, value
from services.registry.io.tables import TENANTS
from shared.contracts import catalog
from shared.messages.adapters import AdapterFailed
from shared.messages.desired import TenantRecord
from shared.messages.effects import AdapterEffect
from shared.messages.operations import Evaluation
from tests.support.adapter_files import BASE, announcement, file_of
from tests.support.stored_adapters import verified


def adapter(adapter_id: str = "v1", **said: Any) -> StoredAdapter:
    return verified(announcement(file_of(), adapter_id=adapter_id, **said))


async def tenant(connection: AsyncConnection, tenant_id: str = "acme") -> None:
    await customer_rows.save_tenant(connection, TenantRecord(tenant_id=tenant_id), 1.0)


# -- transactions --------------------------------------------------------------------------------------


async def test_a_block_that_raises_changes_nothing_and_tells_nobody(database: Database) -> None:
    async def stumble() -> None:
        async with database.write() as connection:
            await tenant(connection)
            raise RuntimeError("planted")

    changed = database.changes.follow_commits()
    with pytest.raises(RuntimeError, match="planted"):
        await stumble()
    assert not changed.is_set()
    async with database.read() as connection:
        assert await customer_rows.tenants(connection) == []


async def test_a_commit_is_told(database: Database) -> None:
    changed = database.changes.follow_commits()
    async with database.write() as connection:
        await tenant(connection)
    assert changed.is_set()


async def test_writers_that_read_first_wait_for_each_other(database: Database) -> None:
    """Without the write lock taken at the begin, all but one would fail: 'database is locked' says the one database,
    'duplicate key' the other."""

    async def count_up(at: int) -> None:
        async with database.write() as connection:
            count = (await connection.execute(select(func.count()).select_from(TENANTS))).scalar_one()
            await asyncio.sleep(0)
            await connection.execute(insert(TENANTS).values(tenant_id=f"t{count}", weight=1.0, created_at_s=0.0))

    await asyncio.gather(*(count_up(at) for at in range(12)))
    async with database.read() as connection:
        assert len(await customer_rows.tenants(connection)) == 12


async def test_rows_are_numbered_in_the_order_in_which_they_are_committed(database: Database) -> None:
    """A relay that has published a row must not find an older one afterwards."""
    numbered, may_commit = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        async with database.write() as connection:
            await outbox_rows.append(connection, [removal(catalog.TENANT, "first")], 1.0)
            numbered.set()
            await may_commit.wait()

    async def quickly() -> None:
        async with database.write() as connection:
            await outbox_rows.append(connection, [removal(catalog.TENANT, "second")], 1.0)

    slow = asyncio.create_task(slowly())
    await numbered.wait()
    quick = asyncio.create_task(quickly())
    async with database.read() as connection:
        assert await outbox_rows.pending(connection, 10) == []
    may_commit.set()
    await asyncio.gather(slow, quick)
    async with database.read() as connection:
        assert [row.note.ids for row in await outbox_rows.pending(connection, 10)] == [("first",), ("second",)]


async def test_a_reader_sees_one_state_however_often_it_looks(database: Database) -> None:
    async with database.read() as reading:
        assert await customer_rows.tenants(reading) == []
        async with database.write() as connection:
            await tenant(connection)
        assert await customer_rows.tenants(reading) == []


async def test_a_key_that_exists_is_a_collision(database: Database) -> None:
    async def collide() -> None:
        async with database.write() as connection:
            await tenant(connection)
            await connection.execute(insert(TENANTS).values(tenant_id="acme", weight=1.0, created_at_s=0.0))

    with pytest.raises(Collision):
        await collide()
    async with database.read() as connection:
        assert await customer_rows.tenants(connection) == []


async def test_an_adapter_without_its_tenant_is_refused_by_the_database(database: Database) -> None:
    with pytest.raises(Collision, match=r"(?i)foreign key"):
        async with database.write() as connection:
            await adapter_rows.save(connection, adapter(), [])


@pytest.mark.parametrize("wrong", [{"size_bytes": 1 << 70}, {"fingerprint": "\ud800"}])
async def test_what_no_database_takes_is_neither_a_collision_nor_a_trouble(
    database: Database, wrong: dict[str, Any]
) -> None:
    async with database.write() as connection:
        await tenant(connection)
    with pytest.raises(Unstorable):
        async with database.write() as connection:
            await adapter_rows.save(connection, msgspec.structs.replace(adapter(), **wrong), [])
    async with database.read() as connection:
        assert await adapter_rows.listed(connection, AdapterFilter()) == []


# -- rows ----------------------------------------------------------------------------------------------


EFFECT = AdapterEffect(
    engine="timed-1/none", token_ids=(9, 4), logprobs=(-0.25, -1.5), shift=0.75, slot_digest="f" * 64
)


async def test_an_adapter_comes_back_as_it_was_saved(database: Database) -> None:
    saved = adapter(use_rslora=True, rank_pattern={"q_proj": 4}, alpha_pattern={"q_proj": 2.0}, alias="acme/x")
    saved = msgspec.structs.replace(saved, effects=(EFFECT,))
    moves = (lifecycle.begin(None, 1.0, 600.0), lifecycle.verify("every check passed", 1.0, 600.0))
    async with database.write() as connection:
        await tenant(connection)
        await adapter_rows.save(connection, saved, moves)
        evaluation = Evaluation(
            adapter_id="v1", digest="d", replica_id="r", passed=True, reason="good", effects=(EFFECT,)
        )
        await adapter_rows.add_evaluation(connection, evaluation, 2.0)
    async with database.read() as connection:
        assert await adapter_rows.find(connection, "v1") == saved
        assert await adapter_rows.find(connection, "V1") is None
        assert await adapter_rows.history(connection, "v1") == [
            msgspec.structs.replace(one, deadline_s=None) for one in moves
        ]
        assert await adapter_rows.evaluations(connection, "v1") == [evaluation]


async def test_a_changed_adapter_replaces_itself_and_nobody_else(database: Database) -> None:
    async with database.write() as connection:
        await tenant(connection)
        for adapter_id in ("v1", "v2"):
            await adapter_rows.save(connection, adapter(adapter_id), [])
        step = lifecycle.move("verified", "evaluating", "why", 3.0)
        await adapter_rows.save(connection, records.after_move(adapter("v1"), step), [step])
    async with database.read() as connection:
        found = await adapter_rows.listed(connection, AdapterFilter(statuses=("evaluating",)))
        assert [one.adapter_id for one in found] == ["v1"]
        assert len(await adapter_rows.listed(connection, AdapterFilter())) == 2


async def test_aliases_and_base_models_come_back_as_they_were_saved(database: Database) -> None:
    plain = AliasState(alias="acme/x", tenant_id="acme", adapter_id="v2", previous_adapter_id="v1", updated_at_s=4.0)
    split = msgspec.structs.replace(
        plain, revision=2, split_adapter_id="v3", split_percent=12.5, split_salt="ab", guard=Guard(max_error_rate=0.25)
    )
    async with database.write() as connection:
        await tenant(connection)
        for adapter_id in ("v1", "v2", "v3"):
            await adapter_rows.save(connection, adapter(adapter_id), [])
        for state in (plain, split):
            await alias_rows.save(connection, state, records.moved(state, "set", "ann", "why not"))
        assert await base_model_rows.save(connection, BASE)
        assert not await base_model_rows.save(connection, BASE)
    async with database.read() as connection:
        assert await alias_rows.find(connection, "acme/x") == split
        assert await alias_rows.guarded(connection) == [split]
        assert await alias_rows.naming(connection, "v2") == await alias_rows.naming(connection, "v3") == ["acme/x"]
        assert await alias_rows.naming(connection, "v1") == []
        assert await base_model_rows.listed(connection) == [BASE]
        assert await base_model_rows.names(connection) == {"small-base"}


async def test_the_outbox_keeps_order_and_forgets_only_what_was_published(database: Database) -> None:
    failed = AdapterFailed(adapter_id="v1", tenant_id="acme", reason="no effect")
    notes = [
        fact(catalog.ADAPTER_FAILED, failed),
        value(catalog.TENANT, TenantRecord(tenant_id="acme"), "acme"),
        removal(catalog.TENANT, "acme"),
    ]
    async with database.write() as connection:
        await outbox_rows.append(connection, notes, 1.0)
    async with database.write() as connection:
        rows = await outbox_rows.pending(connection, 10)
        assert [row.note for row in rows] == notes
        assert [message_of(row.note) for row in rows] == [failed, TenantRecord(tenant_id="acme"), None]
        assert len({row.message_id for row in rows}) == 3
        assert await outbox_rows.pending(connection, 2) == rows[:2]
        await outbox_rows.mark_published(connection, [rows[0].row_id], 2.0)
        await outbox_rows.prune(connection, 10.0)
        assert await outbox_rows.pending(connection, 10) == rows[1:]
        assert await outbox_rows.backlog(connection) == 2


def test_a_note_goes_where_its_channel_says() -> None:
    with pytest.raises(ValueError, match="tenant is no evt channel"):
        fact(catalog.TENANT, TenantRecord(tenant_id="acme"))
