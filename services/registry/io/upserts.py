"""INSERT that minds what is there already: the same words on SQLite and PostgreSQL, in each one's own dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Row = dict[str, Any]

_INSERT: Mapping[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


async def insert_new(connection: AsyncConnection, table: Table, rows: Sequence[Row]) -> set[Any]:
    """Insert those rows whose (single) key is not there yet; the keys of those that were inserted."""
    [key] = table.primary_key.columns
    statement = _INSERT[connection.dialect.name](table).on_conflict_do_nothing(index_elements=[key])
    return set((await connection.execute(statement.returning(key), rows)).scalars())


async def add_up(connection: AsyncConnection, table: Table, rows: Sequence[Row], sums: Sequence[str]) -> None:
    """Insert each row, or add its columns `sums` to the row of the same key and replace what else it has."""
    keys = list(table.primary_key.columns)
    statement = _INSERT[connection.dialect.name](table)
    coming = statement.excluded
    changed = {
        column: column + coming[column.name] if column.name in sums else coming[column.name]
        for column in table.columns
        if column not in keys
    }
    await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), rows)
