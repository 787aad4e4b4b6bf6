"""From a row of the database to the struct that its columns describe."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Of a list in the order of its key: what follows `after`, the last key of the page before."""

    after: str = ""
    limit: int | None = None

    def of(self, query: Select[Any], key: ColumnElement[str]) -> Select[Any]:
        return query.where(key > self.after).order_by(key).limit(self.limit)


EVERYTHING = Page()


def columns_of(row: Row[Any]) -> dict[str, Any]:
    """By name. The names are SQLAlchemy's own kind of text, which msgspec does not take."""
    return {str(name): value for name, value in row._mapping.items()}
