"""Uploads that no adapter was verified with since they came."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.tables import UPLOADS
from services.registry.io.upserts import add_up

_MOST = 1000
"""Of those that are old, at once: the others are so the next time, too."""


async def note(connection: AsyncConnection, digests: Collection[str], now_s: float) -> None:
    """They come now, perhaps again."""
    if digests:
        await add_up(connection, UPLOADS, [{"digest": digest, "at_s": now_s} for digest in digests], ())


async def old(connection: AsyncConnection, before_s: float) -> list[str]:
    """Those that came last before then, the oldest first."""
    query = select(UPLOADS.c.digest).where(UPLOADS.c.at_s < before_s).order_by(UPLOADS.c.at_s).limit(_MOST)
    return list((await connection.execute(query)).scalars())


async def is_old(connection: AsyncConnection, digest: str, before_s: float) -> bool:
    """Whether it is one of them."""
    query = select(UPLOADS.c.at_s).where(UPLOADS.c.digest == digest)
    at_s = (await connection.execute(query)).scalar_one_or_none()
    return at_s is not None and at_s < before_s


async def forget(connection: AsyncConnection, digests: Collection[str]) -> None:
    """Those among them that are there."""
    if digests:
        await connection.execute(delete(UPLOADS).where(UPLOADS.c.digest.in_(digests)))
