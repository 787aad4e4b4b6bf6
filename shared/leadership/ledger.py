"""A leader's own writing on the bus: one bucket, written by compare-and-set, never twice the same, and only while it
leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from shared.bus.port import BusUnavailable, Ids, RevisionConflict, StateStore


class Fenced(Protocol):
    """What is written in a role says with which epoch of the lease; 0: it is of a time before leases."""

    @property
    def epoch(self) -> int: ...


M = TypeVar("M", bound=Fenced)

_ATTEMPTS = 3


class Superseded(Exception):
    """Somebody else has written in this role since: `epoch` is theirs. The message says so."""

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(reason)
        self.epoch = epoch


class NotLeading(Exception):
    """This process may not write now; it did not."""


class Ledger(Generic[M]):
    """What a bucket holds, as far as its only writer knows. `may_write` is asked right before every write, with
    the epoch of what is to be written."""

    def __init__(self, name: str, store: StateStore[M], may_write: Callable[[int], bool]) -> None:
        self.name = name
        self._store = store
        self._may_write = may_write
        self._values: dict[Ids, M] = {}
        self._revisions: dict[Ids, int] = {}
        self._in_doubt: dict[Ids, M] = {}
        """Values whose writing was not confirmed: they may be stored, now or a little later."""

    @property
    def values(self) -> Mapping[Ids, M]:
        return self._values

    @property
    def newest_epoch(self) -> int:
        return max((value.epoch for value in self._values.values()), default=0)

    async def read(self) -> None:
        """Read the whole bucket anew. Raises BusUnavailable; what was known is kept then."""
        entries = await self._store.entries()
        self._values = {entry.ids: entry.value for entry in entries if entry.value is not None}
        self._revisions = {entry.ids: entry.revision for entry in entries}

    async def write(self, value: M, *ids: str) -> bool:
        """Make `value` the one that is stored; whether anything had to be written.

        Raises NotLeading and Superseded, after which nothing of this value is stored, and BusUnavailable, after
        which it may be: calling again finds out.
        """
        if ids in self._in_doubt:
            await self._reread(value.epoch, ids, value)
        if self._values.get(ids) == value:
            return False
        for _ in range(_ATTEMPTS):
            try:
                self._revisions[ids] = await self._put(value, ids)
            except RevisionConflict:
                await self._reread(value.epoch, ids, value)
            else:
                self._values[ids] = value
                self._in_doubt.pop(ids, None)
                return True
        raise Superseded(value.epoch, f"somebody else keeps writing {'.'.join(ids)}")

    async def remove(self, epoch: int, *ids: str) -> None:
        """Delete what is stored, unless it is of a later epoch than ours. Raises NotLeading, Superseded,
        BusUnavailable; calling again is safe."""
        for _ in range(_ATTEMPTS):
            if ids not in self._revisions:
                return
            self._require_leading(epoch)
            try:
                await self._store.delete(*ids, expected_revision=self._revisions[ids])
            except RevisionConflict:
                await self._reread(epoch, ids)
            else:
                self._forget(ids)
        if ids in self._revisions:
            raise Superseded(epoch, f"somebody else keeps writing {'.'.join(ids)}")

    async def _put(self, value: M, ids: Ids) -> int:
        self._require_leading(value.epoch)
        try:
            return await self._store.put(value, *ids, expected_revision=self._revisions.get(ids, 0))
        except BusUnavailable:
            self._in_doubt[ids] = value
            raise

    async def _reread(self, epoch: int, ids: Ids, *own: M) -> None:
        """Learn what is really stored, but not if it shows that we are not alone (an epoch above ours, or ours under
        a value that is none of our `own`): to know its revision would be to overwrite it."""
        current = await self._store.get(*ids)
        if current is None or current.value is None:
            self._forget(ids)
            return
        theirs = current.value.epoch
        is_own = current.value in (*own, self._in_doubt.get(ids), self._values.get(ids))
        if theirs > epoch or (0 < theirs == epoch and not is_own):
            raise Superseded(theirs, f"another has taken over with epoch {theirs}; this one has {epoch}")
        self._values[ids], self._revisions[ids] = current.value, current.revision

    def _forget(self, ids: Ids) -> None:
        self._values.pop(ids, None)
        self._revisions.pop(ids, None)

    def _require_leading(self, epoch: int) -> None:
        if not self._may_write(epoch):
            raise NotLeading(f"the lease is not ours with epoch {epoch} now, so nothing is written")
