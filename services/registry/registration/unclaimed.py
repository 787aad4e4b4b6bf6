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

_LONGEST_S = 60.0
"""Of all tries to remove a file."""
_GOING_S = _LONGEST_S + 60.0
"""Before that is over nobody counts on the file: by then no request to remove it is on its way any more."""


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
        """Whether the file was removed. While that lasts, which may be long, it is neither noted nor announced: the
        database says that it is going, and nobody waits for that."""
        async with self._database.write(announce=False) as connection:
            until_s = self._clock.wall_s() + _GOING_S
            if not await self._let_go(connection, digest, before_s, until_s):
                return False
        await self._remove(weights_key(digest))
        async with self._database.write(announce=False) as connection:
            await upload_rows.forget_gone(connection, digest, until_s)
        return True

    async def _let_go(self, connection: AsyncConnection, digest: str, before_s: float, until_s: float) -> bool:
        """Whether nobody has a use for it. Announcements are kept before their files are looked for."""
        if not await upload_rows.is_old(connection, digest, before_s):
            return False  # it came again, or an adapter has it now
        users = await adapter_rows.with_file(connection, digest)
        if any(status == REGISTERED for status, _ in users):
            return False  # an adapter is being verified with it, perhaps
        if any(store_key for _, store_key in users):
            await upload_rows.forget(connection, [digest])
            return False
        await upload_rows.let_go(connection, digest, until_s)
        return True

    async def _remove(self, store_key: str) -> None:
        """Raises StoreUnavailable: it may be gone all the same, now or in a moment."""
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._store.delete(store_key)
        except TimeoutError as error:
            raise StoreUnavailable(f"it took more than {_LONGEST_S:g} s to remove {store_key}") from error

    async def _note_all(self, connection: AsyncConnection, digests: Sequence[str]) -> list[None]:
        await upload_rows.note(connection, set(digests), self._clock.wall_s())
        return [None] * len(digests)
