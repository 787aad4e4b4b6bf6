"""The database: transactions, and the schema brought up to date at the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType

import msgspec
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.registry.io import postgres, sqlite
from services.registry.io.changes import Changes

_MIGRATIONS = Path(__file__).parent.parent / "migrations"


class DatabaseUnavailable(Exception):
    """The database cannot be reached or is locked for too long. A transaction that was under way has not
    happened, unless the connection broke during its commit; every caller here may repeat it."""


class DatabaseUrlError(Exception):
    """The URL names no database that can be used here."""


class Collision(Exception):
    """Somebody else wrote the same key first; nothing was written."""


class Unstorable(Exception):
    """A value that no column takes: a number out of range, a text that is too long or holds a NUL. Nothing was
    written, and no repetition will change that."""


class DatabasePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What PostgreSQL is asked with; SQLite has no need of it."""

    connections: int = 20
    timeout_s: float = 30.0


class Database:
    """Readers never wait; writers wait for each other. `changes` hears of every commit.

    Raises DatabaseUrlError.
    """

    def __init__(self, url: str, changes: Changes, policy: DatabasePolicy | None = None) -> None:
        policy = policy or DatabasePolicy()
        self._dialect = _dialect_of(url)
        self._url = url
        self._engine = _open(url, self._dialect, **self._dialect.options(policy.connections, policy.timeout_s))
        self._reader = self._engine.execution_options(**self._dialect.READS)
        self._writer = self._engine.execution_options(**self._dialect.WRITES)
        # They wait for each other anyway, and SQLite's own waiting is unfair: it starves some of many for seconds.
        self._turn = asyncio.Lock()
        self.changes = changes

    async def start(self) -> None:
        """Create or migrate the schema; of several registries that start at once one does. Raises
        DatabaseUnavailable."""
        engine = _open(self._url, self._dialect, **self._dialect.patient_options())
        try:
            self._make_place(engine)
            with self._translated():
                async with engine.execution_options(**self._dialect.WRITES).begin() as connection:
                    await connection.run_sync(_migrate)
        finally:
            await engine.dispose()

    async def stop(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One consistent view. Raises DatabaseUnavailable, Unstorable."""
        with self._translated():
            async with self._reader.begin() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, *, announce: bool = True) -> AsyncIterator[AsyncConnection]:
        """All or nothing: committed at the end of the block, rolled back if it raises. With `announce` those
        who follow commits look for what is new. Raises DatabaseUnavailable, Collision, Unstorable."""
        with self._translated():
            async with self._turn, self._writer.begin() as connection:
                yield connection
        if announce:
            self.changes.tell_commit()

    @asynccontextmanager
    async def alone(self, what: str) -> AsyncIterator[bool]:
        """Whether no other registry on this database does `what`; none begins before the block ends, unless the
        connection breaks meanwhile. Raises DatabaseUnavailable."""
        turn: AbstractAsyncContextManager[bool] = self._dialect.alone(self._engine, what)
        with self._translated():
            granted = await turn.__aenter__()
        try:
            yield granted
        finally:
            # Whatever became of the block, it is over; its own errors are not the database's.
            with self._translated():
                await turn.__aexit__(None, None, None)

    async def check(self) -> None:
        """Raises DatabaseUnavailable if it does not answer."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    def _make_place(self, engine: AsyncEngine) -> None:
        if self._dialect is not sqlite:
            return
        try:
            sqlite.make_folder(engine)
        except OSError as error:
            raise DatabaseUnavailable(f"the database's folder cannot be made: {error}") from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            raise Collision(self._dialect.in_words(error)) from error
        except PoolTimeout as error:
            raise DatabaseUnavailable("every connection to the database is busy") from error
        except DBAPIError as error:
            if self._dialect.says_bad_value(error):
                raise Unstorable(self._dialect.in_words(error)) from error
            if not (error.connection_invalidated or self._dialect.says_unavailable(error)):
                raise
            raise DatabaseUnavailable(f"the database does not answer: {self._dialect.in_words(error)}") from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise Unstorable(str(error)) from error
        except OSError as error:
            # A connection that was refused or timed out: the driver passes on what the network said.
            raise DatabaseUnavailable(f"the database does not answer: {error or type(error).__name__}") from error


def _dialect_of(url: str) -> ModuleType:
    try:
        return postgres if make_url(url).get_backend_name() == "postgresql" else sqlite
    except ArgumentError as error:
        raise DatabaseUrlError(f"it names no database: {error}") from error


def _open(url: str, dialect: ModuleType, **options: object) -> AsyncEngine:
    try:
        engine = create_async_engine(url, **options)
    except (ArgumentError, InvalidRequestError, ImportError) as error:
        # Without the URL itself: it may hold a password.
        raise DatabaseUrlError(f"it names no database: {error}") from error
    dialect.prepare(engine)
    return engine


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
