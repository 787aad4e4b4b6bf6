"""The bytes of uploads as they come: into their draft a part at a time, or whole into memory where that costs less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from services.registry.io.drafts import Draft
from shared.store.port import StoreUnavailable

PART_BYTES = 1 << 20
"""Of an upload that goes into its draft so much is held in memory, and has to be sent twice at most."""


class Memory:
    """What all uploads hold that are to stay in memory: at most `most_bytes`, of which one has `each_bytes` at most."""

    def __init__(self, most_bytes: int, each_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._each_bytes = each_bytes

    @contextmanager
    def share(self) -> Iterator[Share]:
        """What it has grown to is free again afterwards."""
        share = Share(self)
        try:
            yield share
        finally:
            share.give_back()

    def has_room(self, held_bytes: int, wanted_bytes: int) -> bool:
        """For somebody who holds so much to hold as much as is wanted."""
        return wanted_bytes <= self._each_bytes and self.held_bytes - held_bytes + wanted_bytes <= self._most_bytes


class Share:
    """One upload's part of the memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held_bytes = 0

    def grow(self, to_bytes: int) -> bool:
        """Whether there is room for so much."""
        if not self._memory.has_room(self._held_bytes, to_bytes):
            return False
        self._memory.held_bytes += to_bytes - self._held_bytes
        self._held_bytes = to_bytes
        return True

    def give_back(self) -> None:
        self._memory.held_bytes -= self._held_bytes
        self._held_bytes = 0


async def fill(draft: Draft, chunks: AsyncIterator[bytes], share: Share) -> bytearray:
    """All that came, if it could stay in memory and nothing came before it; else all is in the draft. What `chunks`
    raises passes through, and what has come is in the draft then, but for StoreUnavailable."""
    waiting, waiting_bytes = list[bytes](), 0
    try:
        async for chunk in chunks:
            waiting.append(chunk)
            waiting_bytes += len(chunk)
            if waiting_bytes >= PART_BYTES and (draft.size_bytes or not share.grow(waiting_bytes)):
                await asyncio.to_thread(_append, draft, waiting)
                share.give_back()
                waiting, waiting_bytes = [], 0
    except StoreUnavailable:
        raise
    except Exception:
        await asyncio.to_thread(_append, draft, waiting)
        raise
    if draft.size_bytes:
        await asyncio.to_thread(_append, draft, waiting)
        return bytearray()
    return bytearray().join(waiting)


def _append(draft: Draft, pieces: list[bytes]) -> None:
    """Joined once: a buffer that grows with every piece is copied as often."""
    draft.append(b"".join(pieces))
