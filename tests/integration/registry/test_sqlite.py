"""What only SQLite can be asked: its file, its lock, and places where no file can be."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import aiosqlite
import pytest

from services.registry.io import customer_rows
from services.registry.io.changes import Changes
from services.registry.io.database import Database, DatabaseUnavailable, DatabaseUrlError
from shared.messages.desired import TenantRecord
from tests.support.registry_watch import eventually


def url(folder: Path) -> str:
    return f"sqlite+aiosqlite:///{folder}/below/registry.db"


async def test_the_file_is_durable_and_readers_do_not_wait(database: Database) -> None:
    async with database.read() as connection:
        found = [
            (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


@pytest.mark.parametrize("wrong", ["nonsense", "sqlite+nothing:///x", "postgresql+nothing://me:secret@x", "me:secret"])
async def test_a_url_that_names_no_database_is_refused_and_not_shown(wrong: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        Database(wrong, Changes())
    assert "secret" not in str(caught.value)


async def test_a_place_where_no_database_can_be_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "below" / "registry.db").mkdir(parents=True)
    database = Database(url(tmp_path), Changes())
    with pytest.raises(DatabaseUnavailable):
        await database.start()
    await database.stop()
    (tmp_path / "file").write_text("")
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/file/registry.db", Changes())
    with pytest.raises(DatabaseUnavailable):
        await database.start()
    await database.stop()
    await eventually(driver_threads_ended)


async def driver_threads_ended() -> bool:
    """A connection that failed to open leaves its thread to end by itself, a moment later."""
    return not any("_connection_worker_thread" in thread.name for thread in threading.enumerate())


async def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path, database: Database) -> None:
    other = sqlite3.connect(tmp_path / "below" / "registry.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with database.read() as connection:
        await connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    with pytest.raises(DatabaseUnavailable, match="locked"):
        async with database.write() as connection:
            await customer_rows.save_tenant(connection, TenantRecord(tenant_id="acme"), 1.0)
    other.execute("ROLLBACK")
    other.close()
    async with database.write() as connection:
        await customer_rows.save_tenant(connection, TenantRecord(tenant_id="acme"), 1.0)


async def test_who_is_cancelled_before_all_rows_came_leaves_no_lock_behind(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its cursor lives: a registry that started next found the database locked."""
    held, begun = list[aiosqlite.Cursor](), asyncio.Event()

    async def endless(cursor: aiosqlite.Cursor) -> None:
        held.append(cursor)
        begun.set()
        await asyncio.Event().wait()

    async def look() -> None:
        async with database.write() as connection:
            await connection.exec_driver_sql("SELECT 1 UNION SELECT 2")

    await database.check()  # its first connection is open then
    monkeypatch.setattr(aiosqlite.Cursor, "fetchall", endless)
    looking = asyncio.create_task(look())
    await begun.wait()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    other = sqlite3.connect(tmp_path / "below" / "registry.db", isolation_level=None, timeout=0.0)
    other.execute("BEGIN IMMEDIATE")
    other.close()
    assert held
