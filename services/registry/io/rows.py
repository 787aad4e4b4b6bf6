"""From a row of the database to the struct that its columns describe."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row


def columns_of(row: Row[Any]) -> dict[str, Any]:
    """By name. The names are SQLAlchemy's own kind of text, which msgspec does not take."""
    return {str(name): value for name, value in row._mapping.items()}
