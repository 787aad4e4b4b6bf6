"""The database: transactions, and the schema brought up to date at the start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InvalidRequestError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from services.registry.io import sqlite
from services.registry.io.changes import Changes

_MIGRATIONS = Path(__file__).parent.parent / "migrations"


class DatabaseUnavailable(Exception):
    """The database cannot be reached or is locked for too long. A transaction that was under way has not
    happened, unless the connection broke during its commit; every caller here may repeat it."""


class DatabaseUrlError(Exception):
    """The URL names no database that can be used here."""


class Collision(Exception):
    """Somebody else wrote the same key first; nothing was written."""


class Database:
    """Readers never wait; writers wait for each other. `changes` hears of every commit.

    Raises DatabaseUrlError.
    """

    def __init__(self, url: str, changes: Changes) -> None:
        try:
            self._engine = create_async_engine(url)
        except (ArgumentError, InvalidRequestError, ImportError) as error:
            # Without the URL itself: it may hold a password.
            raise DatabaseUrlError(f"it names no database: {error}") from error
        self._writer = self._engine.execution_options(**{sqlite.WRITES: True})
        self.changes = changes
        sqlite.prepare(self._engine)

    async def start(self) -> None:
        """Create or migrate the schema. Raises DatabaseUnavailable."""
        try:
            sqlite.make_folder(self._engine)
        except OSError as error:
            raise DatabaseUnavailable(f"the database's folder cannot be made: {error}") from error
        with _translated():
            async with self._writer.begin() as connection:
                await connection.run_sync(_migrate)

    async def stop(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One consistent view. Raises DatabaseUnavailable."""
        with _translated():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, *, announce: bool = True) -> AsyncIterator[AsyncConnection]:
        """All or nothing: committed at the end of the block, rolled back if it raises. With `announce` those
        who follow commits look for what is new. Raises DatabaseUnavailable, Collision."""
        with _translated():
            async with self._writer.begin() as connection:
                yield connection
        if announce:
            self.changes.tell_commit()

    async def check(self) -> None:
        """Raises DatabaseUnavailable if it does not answer."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise Collision(str(error.orig)) from error
    except (OperationalError, InterfaceError) as error:
        raise DatabaseUnavailable(f"the database does not answer: {error.orig}") from error
    except PoolTimeout as error:
        raise DatabaseUnavailable("every connection to the database is busy") from error
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise DatabaseUnavailable(f"the database went away: {error.orig}") from error


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
