"""PostgreSQL for tests: one server for the whole run, and for each test a database that has its tables already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from infra.postgres.server import PostgresServer, postgres_server
from services.registry.io.changes import Changes
from services.registry.io.database import Database

_TEMPLATE = "migrated"


class Postgres:
    """A running server. Hundreds of databases of 400 files each would take longer to remove than to use, so none stays
    for long that nobody needs any more."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._made = 0
        self._used: list[str] = []
        self._needless: list[str] = []

    async def new_database(self, *, migrated: bool = True) -> str:
        """The URL of a database that nobody else uses; without `migrated` it is empty."""
        if not self._made:
            await self._prepare()
        self._made += 1
        name = f"test_{self._made}"
        self._used.append(name)
        needless, self._needless = self._needless, []
        drops = [f"DROP DATABASE {each} WITH (FORCE)" for each in needless]
        # Copying files is twice as fast as logging all that is in them.
        template = _TEMPLATE if migrated else "template0"
        await self.say(*drops, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self.server.url(name)

    def let_go(self) -> None:
        """Nobody needs the databases that were made until now; they go when the next one is made."""
        self._needless += self._used
        self._used.clear()

    async def say(self, *statements: str) -> None:
        """As its administrator, outside any transaction."""
        engine = create_async_engine(self.server.url(), isolation_level="AUTOCOMMIT", poolclass=NullPool)
        async with engine.connect() as connection:
            for statement in statements:
                await connection.execute(text(statement))

    async def _prepare(self) -> None:
        """The database that new ones are copies of."""
        await self.say(f"CREATE DATABASE {_TEMPLATE}")
        database = Database(self.server.url(_TEMPLATE), Changes())
        await database.start()
        await database.stop()


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield Postgres(server)
