"""The outbox: notes that are committed together with the change that they tell of."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.notes import Note
from services.registry.io.tables import OUTBOX


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """`message_id` stays the same however often the row is published: the bus stores it once."""

    row_id: int
    message_id: str
    note: Note


async def append(connection: AsyncConnection, notes: Sequence[Note], now_s: float) -> None:
    """In the caller's transaction, in this order."""
    rows = [
        {
            "message_id": secrets.token_hex(16),
            "channel": note.channel,
            "ids": list(note.ids),
            "payload": None if note.payload is None else note.payload.decode(),
            "created_at_s": now_s,
        }
        for note in notes
    ]
    if rows:
        await connection.execute(insert(OUTBOX), rows)


async def pending(connection: AsyncConnection, limit: int) -> list[OutboxRow]:
    """The oldest rows that are not published, oldest first."""
    query = select(OUTBOX).where(OUTBOX.c.published_at_s.is_(None)).order_by(OUTBOX.c.row_id).limit(limit)
    return [
        OutboxRow(
            row_id=row.row_id,
            message_id=row.message_id,
            note=Note(
                channel=row.channel,
                ids=tuple(row.ids),
                payload=None if row.payload is None else row.payload.encode(),
            ),
        )
        for row in await connection.execute(query)
    ]


async def mark_published(connection: AsyncConnection, row_ids: Sequence[int], now_s: float) -> None:
    await connection.execute(update(OUTBOX).where(OUTBOX.c.row_id.in_(row_ids)).values(published_at_s=now_s))


async def backlog(connection: AsyncConnection) -> int:
    query = select(func.count()).select_from(OUTBOX).where(OUTBOX.c.published_at_s.is_(None))
    return (await connection.execute(query)).scalar_one()


async def prune(connection: AsyncConnection, before_s: float) -> None:
    """Forget what was published before then."""
    await connection.execute(delete(OUTBOX).where(OUTBOX.c.published_at_s < before_s))
