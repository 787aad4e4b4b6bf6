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
    """What all uploads hold that are to stay in memory, and what waits for the next: at most `most_bytes`, of which one
    has `each_bytes` at most. Of an upload's first part only that counts which is a buffer that waited for it."""

    def __init__(self, most_bytes: int, each_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._each_bytes = each_bytes
        self._open = 0
        self._spare: list[bytearray] = []

    @property
    def spare_bytes(self) -> int:
        """Of buffers that wait for the next upload. They have what room uploads leave."""
        return sum(map(len, self._spare))

    @contextmanager
    def share(self) -> Iterator[Share]:
        """What it has grown to is free again afterwards. If all went well its buffer is for the next one: memory that
        is new from the system costs more than to fill it. Else a thread may still be reading it."""
        share = Share(self, self._spare.pop() if self._spare else bytearray())
        share.grow(len(share.buffer))  # it had this room while it waited
        self._open += 1
        try:
            yield share
            self._spare.append(share.buffer)
        finally:
            self._open -= 1
            share.give_back()

    def hold(self, before_bytes: int, now_bytes: int) -> bool:
        """Whether there is room for somebody who held so much to hold as much as that, from now on."""
        after_bytes = self.held_bytes - before_bytes + now_bytes
        if now_bytes and (now_bytes > self._each_bytes or after_bytes > self._most_bytes):
            return False
        self.held_bytes = after_bytes
        while self._spare and (not self._open or after_bytes + self.spare_bytes > self._most_bytes):
            self._spare.pop()
        return True


class Share:
    """One upload's part of the memory. `buffer` is its own within the context; what is in it at first means nothing."""

    def __init__(self, memory: Memory, buffer: bytearray) -> None:
        self.buffer = buffer
        self._memory = memory
        self._held_bytes = 0

    def grow(self, to_bytes: int) -> bool:
        """Whether there is room for so much."""
        if to_bytes <= self._held_bytes:
            return True
        if not self._memory.hold(self._held_bytes, to_bytes):
            return False
        self._held_bytes = to_bytes
        return True

    def give_back(self) -> None:
        self._memory.hold(self._held_bytes, 0)
        self._held_bytes = 0


async def fill(draft: Draft, chunks: AsyncIterator[bytes], share: Share) -> bytearray:
    """All that came, if it could stay in memory and nothing came before it, in the buffer of the share; else all is in
    the draft. What `chunks` raises passes through, and what has come is in the draft then, but for StoreUnavailable."""
    waiting, waiting_bytes = share.buffer, 0
    try:
        async for chunk in chunks:
            waiting[waiting_bytes : waiting_bytes + len(chunk)] = chunk
            waiting_bytes += len(chunk)
            if waiting_bytes >= PART_BYTES and (draft.size_bytes or not share.grow(waiting_bytes)):
                await asyncio.to_thread(_append, draft, waiting, waiting_bytes)
                del waiting[PART_BYTES:]  # all that the rest of it needs
                share.give_back()
                waiting_bytes = 0
    except StoreUnavailable:
        raise
    except Exception:
        await asyncio.to_thread(_append, draft, waiting, waiting_bytes)
        raise
    if draft.size_bytes:
        await asyncio.to_thread(_append, draft, waiting, waiting_bytes)
        return bytearray()
    del waiting[waiting_bytes:]
    return waiting


def _append(draft: Draft, buffer: bytearray, size_bytes: int) -> None:
    with memoryview(buffer) as view, view[:size_bytes] as piece:
        draft.append(piece)
