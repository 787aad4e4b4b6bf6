"""Placement's own writing on the bus: one bucket, written by compare-and-set and never twice the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from shared.bus.port import BusUnavailable, Ids, RevisionConflict, StateStore
from shared.messages.desired import AssignmentShard, Membership, OwnerCount

M = TypeVar("M")

_ATTEMPTS = 3


class Superseded(Exception):
    """Another placement has taken over: this one must not write any more. The message names its epoch."""


def epoch_of(value: Membership | AssignmentShard | OwnerCount) -> int:
    return 0 if isinstance(value, OwnerCount) else value.epoch


class Ledger(Generic[M]):
    """What a bucket holds, as far as its only writer knows.

    `epoch_of` reads the fencing epoch of a value; where values carry none it returns 0, and a foreign write
    is simply overwritten: the memberships, written first, are what fences.
    """

    def __init__(self, name: str, store: StateStore[M], epoch_of: Callable[[M], int]) -> None:
        self.name = name
        self._store = store
        self._epoch_of = epoch_of
        self._values: dict[Ids, M] = {}
        self._revisions: dict[Ids, int] = {}
        self._in_doubt: dict[Ids, M] = {}
        """Values whose writing was not confirmed: they may be stored, now or a little later."""

    @property
    def values(self) -> Mapping[Ids, M]:
        return self._values

    async def read(self) -> None:
        """Read the whole bucket anew. Raises BusUnavailable; what was known is kept then."""
        entries = await self._store.entries()
        self._values = {entry.ids: entry.value for entry in entries if entry.value is not None}
        self._revisions = {entry.ids: entry.revision for entry in entries}

    async def write(self, value: M, *ids: str) -> bool:
        """Make `value` the one that is stored; whether anything had to be written.

        Raises Superseded, after which nothing of this value is stored, and BusUnavailable, after which
        it may be: calling again finds out.
        """
        if ids in self._in_doubt:
            await self._reread(value, ids)
        if self._values.get(ids) == value:
            return False
        for _ in range(_ATTEMPTS):
            try:
                self._revisions[ids] = await self._put(value, ids)
            except RevisionConflict:
                await self._reread(value, ids)
            else:
                self._values[ids] = value
                self._in_doubt.pop(ids, None)
                return True
        raise Superseded(f"somebody else keeps writing {'.'.join(ids)}")

    async def remove(self, *ids: str) -> None:
        """Raises BusUnavailable; calling again is safe."""
        await self._store.delete(*ids)
        self._values.pop(ids, None)
        self._revisions.pop(ids, None)

    async def _put(self, value: M, ids: Ids) -> int:
        try:
            return await self._store.put(value, *ids, expected_revision=self._revisions.get(ids, 0))
        except BusUnavailable:
            self._in_doubt[ids] = value
            raise

    async def _reread(self, value: M, ids: Ids) -> None:
        """Learn what is really stored, and stop here if it shows that we are not alone: an epoch above
        ours, or ours under a value that we never wrote."""
        current = await self._store.get(*ids)
        if current is None or current.value is None:
            self._values.pop(ids, None)
            self._revisions.pop(ids, None)
            return
        theirs, ours = self._epoch_of(current.value), self._epoch_of(value)
        is_own = current.value in (value, self._in_doubt.get(ids), self._values.get(ids))
        if theirs > ours or (ours and theirs == ours and not is_own):
            raise Superseded(f"another placement has taken over with epoch {theirs}; this one has {ours}")
        self._values[ids], self._revisions[ids] = current.value, current.revision
