"""Which statements a registry sends to its database, as the driver gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, event

_PLANNED = ("SELECT", "UPDATE", "DELETE")
_NO_TABLE = ("SELECT 1", "SELECT pg_")


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is who sent it first, with these parameters."""

    dialect: str
    text: str
    parameters: Any
    by: str


class Statements:
    """Each once, however often it was sent."""

    def __init__(self, sender: Callable[[], str | None]) -> None:
        self.found: dict[tuple[str, str], Statement] = {}
        self._sender = sender

    def __call__(self, connection: Connection, cursor: object, text: str, parameters: Any, *more: Any) -> None:
        """What SQLAlchemy calls before it sends a statement; last in `more` is whether it is sent for many rows."""
        many = more[-1]
        by = self._sender()
        if by is None or many or not text.startswith(_PLANNED) or text.startswith(_NO_TABLE):
            return
        dialect = connection.dialect.name
        said = Statement(dialect=dialect, text=text, parameters=tuple(parameters), by=by)
        self.found.setdefault((dialect, text), said)


@contextmanager
def listening(sender: Callable[[], str | None] = lambda: "") -> Iterator[Statements]:
    """All that any engine of this process is sent meanwhile, but what `sender` says is nobody's (None)."""
    statements = Statements(sender)
    event.listen(Engine, "before_cursor_execute", statements)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", statements)
