"""Uploads that no adapter was verified with since they came."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io.tables import UPLOADS
from services.registry.io.upserts import add_up
from shared.messages.identity import is_digest
from shared.store.port import StoreUnavailable

_MOST = 1000
"""Of those that are old, at once: the others are so the next time, too."""


async def note(connection: AsyncConnection, digests: Collection[str], now_s: float) -> None:
    """They come now, perhaps again. Raises StoreUnavailable if one of them is going; none is noted then."""
    await check_staying(connection, digests, now_s)
    if digests:
        rows = [{"digest": digest, "at_s": now_s, "going_until_s": None} for digest in digests]
        await add_up(connection, UPLOADS, rows, ())


async def check_staying(connection: AsyncConnection, digests: Collection[str], now_s: float) -> None:
    """Raises StoreUnavailable if the file of one of them is being removed. What is no digest names no file."""
    if not (names := {digest for digest in digests if is_digest(digest)}):
        return
    query = select(UPLOADS.c.digest).where(UPLOADS.c.digest.in_(names), UPLOADS.c.going_until_s > now_s)
    if going := (await connection.execute(query)).scalars().first():
        raise StoreUnavailable(f"it is just removing the file {going}, which nobody had a use for")


async def old(connection: AsyncConnection, before_s: float) -> list[str]:
    """Those that came last before then, the oldest first."""
    query = select(UPLOADS.c.digest).where(UPLOADS.c.at_s < before_s).order_by(UPLOADS.c.at_s).limit(_MOST)
    return list((await connection.execute(query)).scalars())


async def is_old(connection: AsyncConnection, digest: str, before_s: float) -> bool:
    """Whether it is one of them."""
    query = select(UPLOADS.c.at_s).where(UPLOADS.c.digest == digest)
    at_s = (await connection.execute(query)).scalar_one_or_none()
    return at_s is not None and at_s < before_s


async def let_go(connection: AsyncConnection, digest: str, until_s: float) -> None:
    """Nobody may count on the file before then."""
    await connection.execute(update(UPLOADS).where(UPLOADS.c.digest == digest).values(going_until_s=until_s))


async def forget_gone(connection: AsyncConnection, digest: str, until_s: float) -> None:
    """Unless it has come again since it was let go until then."""
    await connection.execute(delete(UPLOADS).where(UPLOADS.c.digest == digest, UPLOADS.c.going_until_s == until_s))


async def forget(connection: AsyncConnection, digests: Collection[str]) -> None:
    """Those among them that are there."""
    if digests:
        await connection.execute(delete(UPLOADS).where(UPLOADS.c.digest.in_(digests)))
