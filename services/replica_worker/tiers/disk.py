"""The disk tier: files within a byte budget, fetched from the store once and checked at every use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from services.replica_worker.core.pace import Pace
from services.replica_worker.core.tiers import ByteBudget, NoRoom
from services.replica_worker.io.disk import DiskFiles, DiskRefused, FileDamaged
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from services.replica_worker.tiers.shelf import Shelf
from services.replica_worker.tiers.single_flight import SingleFlight
from shared.messages.desired import AdapterRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.store.port import DigestMismatch, ObjectMissing, ObjectStore, StoreUnavailable

_FETCHES_AT_ONCE = 4
_ATTEMPTS = 3
_STALE_S = 3600.0
_log = get_logger(__name__)


class DiskTier:
    """Everything is keyed by digest: two adapters with the same bytes share a file, two with different
    bytes never do. `on_change` is told the digest that came or went."""

    def __init__(
        self,
        files: DiskFiles,
        store: ObjectStore,
        budget: ByteBudget[str],
        clock: Clock,
        on_change: Callable[[str], None],
    ) -> None:
        self.budget = budget
        self.pace = Pace()
        self._shelf = Shelf("on disk", budget, clock)
        self._files = files
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._flights: SingleFlight[str, None] = SingleFlight()
        self._gate = asyncio.Semaphore(_FETCHES_AT_ONCE)

    async def open(self) -> None:
        """Take over what an earlier process left, whole or half. Raises DiskRefused."""
        for file in await asyncio.to_thread(self._files.open):
            adopt = self.budget.adopt if file.whole else self.budget.adopt_broken_off
            room = adopt(file.digest, file.size_bytes, self._clock.now_s())
            if isinstance(room, NoRoom):
                self._files.delete(file.digest)
            else:
                self._remove(room.evict)

    async def close(self) -> None:
        await self._flights.close()
        self._files.close()

    def holds(self, digest: str) -> bool:
        return self.budget.holds(digest)

    async def hold(self, record: AdapterRecord) -> None:
        """Fetch the file unless it is there. Raises AdapterUnavailable, AdapterFailed; it is not there then."""
        if self.budget.holds(record.digest):
            self._shelf.touch(record.digest)
        else:
            await self._flights.run(record.digest, lambda: self._fetch(record))

    @asynccontextmanager
    async def checked(self, record: AdapterRecord) -> AsyncIterator[Path]:
        """The path of a file whose digest was right a moment ago, kept in place until the end of the block.

        A damaged file is deleted and fetched again. Raises AdapterUnavailable, AdapterFailed.
        """
        damage = "its file was evicted before it could be read"
        for _ in range(_ATTEMPTS):
            await self.hold(record)
            if not self.budget.holds(record.digest):
                continue
            with self._shelf.pinned(record.digest):
                try:
                    await self._files.check(record.digest)
                except FileDamaged as error:
                    damage = str(error)
                else:
                    yield self._files.path(record.digest)
                    return
            _log.warning("a cached file is damaged and is fetched again", reason=damage)
            self.discard(record.digest)
        raise AdapterUnavailable(damage)

    def discard(self, digest: str) -> str | None:
        """Delete a file; returns why not if it is being used or fetched, or the disk refuses: it still counts then."""
        if self.budget.in_use(digest):
            return "its file is being read or fetched"
        if self.budget.counts(digest):
            try:
                self._files.delete(digest)
            except DiskRefused as error:
                return str(error)
            self.budget.drop(digest)
            self._on_change(digest)
        return None

    async def _fetch(self, record: AdapterRecord) -> None:
        async with self._gate:
            evicted = await self._shelf.reserve(record.digest, record.size_bytes)
            try:
                self._remove(evicted)
                self._discard_stale()
                size_bytes = await self._receive(record)
            except BaseException as error:
                self._give_up(record)
                if (explained := _explained(error, record)) is None:
                    raise
                raise explained from error
            self._remove(self._shelf.arrived(record.digest, size_bytes))
        self._on_change(record.digest)

    async def _receive(self, record: AdapterRecord) -> int:
        """Its size in bytes; raises what the store or the disk does."""
        size_bytes = 0
        self.pace.began(self._clock.now_s())
        try:
            fetch = partial(self._store.read, record.store_key)
            size_bytes = await self._files.write(record.digest, fetch, record.size_bytes)
        finally:
            self.pace.ended(size_bytes, self._clock.now_s())
        return size_bytes

    def _give_up(self, record: AdapterRecord) -> None:
        """For now: what did arrive may be of use to the next attempt, and counts until then."""
        if kept_bytes := self._files.kept_bytes(record.digest):
            self._shelf.broke_off(record.digest, min(kept_bytes, record.size_bytes))
        else:
            self._shelf.cancel(record.digest)

    def _discard_stale(self) -> None:
        for digest in self.budget.stale(self._clock.now_s() - _STALE_S):
            self.discard(digest)

    def _remove(self, digests: tuple[str, ...]) -> None:
        for digest in digests:
            self._files.delete(digest)
            self._on_change(digest)


def _explained(error: BaseException, record: AdapterRecord) -> AdapterFailed | AdapterUnavailable | None:
    """None for what is nobody's fault here, such as being cancelled."""
    match error:
        case DigestMismatch():
            return AdapterFailed(f"the stored file of {record.adapter_id} is corrupt: {error}", lost="corrupt")
        case ObjectMissing():
            return AdapterUnavailable(f"the file of {record.adapter_id} is not in the store: {error}", lost="missing")
        case StoreUnavailable() | DiskRefused():
            return AdapterUnavailable(f"{record.adapter_id} cannot be fetched: {error}", retry_after_s=2.0)
    return None
