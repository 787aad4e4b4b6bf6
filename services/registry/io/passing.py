"""A weights file that is judged on its way into the store: it is read once, and only a good one becomes an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import msgspec

from services.registry.core.files.verify import FileFacts
from services.registry.core.records import Content
from services.registry.io.inspection import Inspection, Source
from shared.messages.adapters import Defect
from shared.store.port import ObjectStore, weights_key

Judged = Content | tuple[Defect, ...]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is to be. `judge` may take a second, and is asked in a thread; `hopeless`, that there is a defect
    whatever the file is."""

    digest: str
    largest_file_bytes: int
    judge: Callable[[FileFacts], Judged]
    hopeless: bool = False


class NotAsWanted(Exception):
    """The file has defects, or is too large."""


async def pass_into(store: ObjectStore, source: Source, wanted: Wanted) -> Content:
    """The content of a file that is in the store by then. Raises NotAsWanted, DigestMismatch, and what reading it and
    the store raise; nothing is visible then."""
    found: list[Content] = []
    async with aclosing(_judged(source, wanted, found)) as chunks:
        await store.put(weights_key(wanted.digest), chunks, wanted.digest)
    return found[0]


async def _judged(source: Source, wanted: Wanted, found: list[Content]) -> AsyncIterator[bytes]:
    """The store, which refuses another SHA-256, sees to it that the bytes judged here are those announced."""
    reading = Inspection(hashes=False)
    async with aclosing(source.chunks()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            if reading.is_quick:
                reading.feed(chunk)
            else:
                await asyncio.to_thread(reading.feed, chunk)
            if reading.size_bytes > wanted.largest_file_bytes:
                raise NotAsWanted
            yield chunk
    facts = msgspec.structs.replace(reading.facts(), digest=wanted.digest, config=source.config)
    judged = await asyncio.to_thread(wanted.judge, facts)
    if not isinstance(judged, Content):
        raise NotAsWanted
    found.append(judged)
