"""What SQLite needs to keep the promises that PostgreSQL keeps by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

READS: Mapping[str, Any] = {}
WRITES: Mapping[str, Any] = {"lorafleet_writes": True}

_PRAGMAS = (
    "PRAGMA busy_timeout = 10000",
    "PRAGMA journal_mode = WAL",  # readers do not wait for the writer
    "PRAGMA synchronous = FULL",  # a commit that was answered survives a power cut
    "PRAGMA foreign_keys = ON",
)


def prepare(engine: AsyncEngine) -> None:
    """Make it durable and its transactions real."""
    event.listen(engine.sync_engine, "connect", _on_connect)
    event.listen(engine.sync_engine, "begin", _on_begin)
    event.listen(engine.sync_engine, "invalidate", _on_invalidate)


def options(connections: int, timeout_s: float) -> dict[str, Any]:
    """None: it is one file, and waits as the pragmas say."""
    return {}


def patient_options() -> dict[str, Any]:
    return {}


def says_unavailable(error: DBAPIError) -> bool:
    """Whether the same statement may go through later."""
    return isinstance(error, OperationalError | InterfaceError)


def says_bad_value(error: DBAPIError) -> bool:
    """Never: it takes any text and any length, and a number that it cannot take is no error of its own."""
    return False


def in_words(error: DBAPIError) -> str:
    return str(error.orig)


@asynccontextmanager
async def alone(engine: AsyncEngine, what: str) -> AsyncIterator[bool]:
    """Always: its file belongs to one registry."""
    yield True


def make_folder(engine: AsyncEngine) -> None:
    """The folder of the database's file. Raises OSError."""
    if engine.url.database:
        Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)


def _on_connect(connection: Any, record: object) -> None:
    # The driver must not begin transactions by its own rules: `_on_begin` does.
    connection.isolation_level = None
    try:
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(pragma)
        cursor.close()
    except BaseException:
        # The pool does not know it yet, so nobody else would end its thread.
        connection.close()
        raise


def _on_invalidate(connection: Any, record: object, exception: BaseException | None) -> None:
    """Of who is cancelled. Closed while a cursor has rows left, its transaction would go on, and hold the lock,
    until that cursor is collected as garbage."""
    if isinstance(exception, asyncio.CancelledError):
        with suppress(sqlite3.Error):
            connection.rollback()


def _on_begin(connection: Connection) -> None:
    """A transaction that reads first and writes later fails if another wrote in between, without waiting;
    so one that will write takes the write lock at once."""
    writes = connection.get_execution_options().get("lorafleet_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
