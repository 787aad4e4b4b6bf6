"""What all tables share: one schema, names for constraints, and how rows are numbered."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData

from shared.messages.desired import Limits

# Named, so that a migration can say which constraint it changes, whatever the database.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only in a column that is an INTEGER to the letter.
ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def limits() -> tuple[Column[int], ...]:
    """Columns of whoever has limits; NULL is none."""
    return tuple(Column(name, BigInteger) for name in Limits.__struct_fields__)
