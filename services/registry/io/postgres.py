"""What PostgreSQL needs to keep the promises of the registry's database, for one registry or several."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

READS: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""One consistent view, however many statements look at it."""
WRITES: Mapping[str, Any] = {"isolation_level": "READ COMMITTED", "lorafleet_writes": True}
"""What is read after the wait for others is what they have left, whatever the server's own default is."""

_WRITERS, _PATIENCE_S = "writers", 10.0
_MS = 1000
_SESSION = {
    "application_name": "lorafleet-registry",
    # A registry whose machine vanished without a word keeps its locks no longer than this.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
_AWAY = ("08", "28", "3D", "40", "53", "55P03", "57", "58", "25006")
"""Beginnings of SQLSTATEs of a server that cannot now: no connection, no access, no such database, a serialization
failure or deadlock, no space or too many connections, a lock not granted, shut down or cancelled, an error of its
system, a replica that only reads."""
_BAD_VALUE = "22"


def options(connections: int, timeout_s: float) -> dict[str, Any]:
    """Of an engine whose statements end after `timeout_s`, or a little later if it is the network that is silent."""
    waits = {
        "statement_timeout": timeout_s,
        "lock_timeout": min(timeout_s / 2, _PATIENCE_S),
        "idle_in_transaction_session_timeout": 2 * timeout_s,
    }
    said = {name: str(max(int(seconds * _MS), 1)) for name, seconds in waits.items()}
    return {
        "pool_size": connections,
        "max_overflow": 0,
        "pool_timeout": timeout_s,
        "pool_pre_ping": True,
        "connect_args": {"timeout": timeout_s, "command_timeout": 1.5 * timeout_s, "server_settings": _SESSION | said},
    }


def patient_options() -> dict[str, Any]:
    """Of an engine for one migration: it, and the wait for another registry's, takes as long as it takes."""
    return {"poolclass": NullPool, "connect_args": {"server_settings": _SESSION}}


def prepare(engine: AsyncEngine) -> None:
    """Make its transactions those of one writer at a time."""
    event.listen(engine.sync_engine, "begin", _on_begin)


def says_unavailable(error: DBAPIError) -> bool:
    """Whether the same statement may go through later."""
    return _state_of(error).startswith(_AWAY) or isinstance(error, OperationalError | InterfaceError)


def says_bad_value(error: DBAPIError) -> bool:
    """Whether a value fits no column: too long, out of range, or text with a NUL. The driver finds some of them
    itself."""
    return _state_of(error).startswith(_BAD_VALUE) or isinstance(getattr(error.orig, "__cause__", None), ValueError)


def in_words(error: DBAPIError) -> str:
    """What the server or the driver said, without the names of its classes."""
    return str(getattr(error.orig, "__cause__", None) or error.orig).partition("\n")[0]


@asynccontextmanager
async def alone(engine: AsyncEngine, what: str) -> AsyncIterator[bool]:
    """Whether nobody else on this database does `what`; nobody begins it before the block ends, unless the
    connection breaks meanwhile."""
    async with engine.begin() as connection:
        await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        granted = await connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _lock_of(what)})
        yield granted.scalar_one()


def _on_begin(connection: Connection) -> None:
    """Those who will write wait for each other before they read, as on SQLite: what they decide from cannot change
    under them, and rows get their numbers in the order in which they are committed."""
    if connection.get_execution_options().get("lorafleet_writes", False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_lock_of(_WRITERS)})")


def _lock_of(what: str) -> int:
    """The number that PostgreSQL knows a lock by; the rest of the database may have locks of its own."""
    digest = hashlib.sha256(f"lorafleet {what}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _state_of(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
