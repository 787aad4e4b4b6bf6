"""Uploads lie at their final place in the store before an adapter is verified with them: which do so in vain?

One is on record before its bytes are in the store, and until an adapter is verified with it. So whatever is killed
leaves a file that belongs to an adapter, or one that is found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.lifecycle import REGISTERED
from services.registry.io import adapter_rows, upload_rows
from services.registry.io.database import Database
from services.registry.registration.batches import Batches
from shared.runtime.clock import Clock
from shared.store.port import ObjectStore, StoreUnavailable, weights_key

_LONGEST_S = 5.0
"""Everybody who writes to the database waits for a file that is removed."""


class Unclaimed:
    """Everything here may raise DatabaseUnavailable."""

    def __init__(self, database: Database, store: ObjectStore, clock: Clock) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._noting = Batches(database, self._note_all, announce=False)

    @asynccontextmanager
    async def noting(self, digest: str) -> AsyncIterator[asyncio.Task[None]]:
        """While it comes. Once the task has ended it is on record, and its bytes may go into the store: whoever waits
        for them does not wait for the database as well."""
        task = asyncio.create_task(self._noting.add(digest))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        await self._noting.stop()

    async def prune(self, keep_s: float) -> int:
        """Remove the files that came longer ago and that no adapter has; how many those were. Raises
        StoreUnavailable."""
        before_s = self._clock.wall_s() - keep_s
        async with self._database.read() as connection:
            old = await upload_rows.old(connection, before_s)
        return sum([await self._pruned(digest, before_s) for digest in old])

    async def _pruned(self, digest: str, before_s: float) -> bool:
        """Whether the file was removed. Announcements are kept before their files are looked for, and are not kept
        while this lasts; nor are uploads noted."""
        async with self._database.write(announce=False) as connection:
            if not await upload_rows.is_old(connection, digest, before_s):
                return False  # it came again, or an adapter has it now
            users = await adapter_rows.with_file(connection, digest)
            if any(status == REGISTERED for status, _ in users):
                return False  # an adapter is being verified with it, perhaps
            if unused := not any(store_key for _, store_key in users):
                await self._remove(weights_key(digest))
            await upload_rows.forget(connection, [digest])
            return unused

    async def _remove(self, store_key: str) -> None:
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._store.delete(store_key)
        except TimeoutError as error:
            raise StoreUnavailable(f"it took more than {_LONGEST_S} s to remove {store_key}") from error

    async def _note_all(self, connection: AsyncConnection, digests: Sequence[str]) -> list[None]:
        await upload_rows.note(connection, set(digests), self._clock.wall_s())
        return [None] * len(digests)
