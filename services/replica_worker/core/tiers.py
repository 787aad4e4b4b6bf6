"""A byte budget with least-recently-used eviction, for the RAM and disk tiers.

Keys are whatever names a thing in that tier: the digest of a file on disk, the adapter key in RAM.
What is pinned or still being brought in is never evicted. What is left of an arrival that broke off counts
like anything else until the next one takes it up, and is not held.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)


class Room(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """There is room. `evict` left the table; the caller removes the bytes."""

    evict: tuple[K, ...]
    reason: str


class NoRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing changed: even without everything evictable the budget would not hold."""

    reason: str


@dataclass
class _Entry:
    size_bytes: int
    last_used_s: float
    arriving: bool = False
    broken_off: bool = False
    pins: int = 0

    @property
    def whole(self) -> bool:
        return not self.arriving and not self.broken_off


@dataclass
class ByteBudget(Generic[K]):
    """Methods that are told of something impossible raise ValueError."""

    budget_bytes: int
    preferred: Collection[K] = frozenset()
    """Evicted only once nothing else is left: what the assignment wants here."""
    _entries: dict[K, _Entry] = field(init=False, default_factory=dict)
    _used_bytes: int = field(init=False, default=0)

    def reserve(self, key: K, size_bytes: int, now_s: float) -> Room[K] | NoRoom:
        """Make room for something that is about to arrive; end with `arrived`, `broke_off` or `drop`."""
        rest = self._entries.get(key)
        if rest is not None and not rest.broken_off:
            raise ValueError(f"{key} is already there or on its way")
        room = self._make_room(size_bytes - (rest.size_bytes if rest else 0), frozenset({key}))
        if isinstance(room, Room):
            if rest is not None:
                self.drop(key)
            self._add(key, _Entry(size_bytes, now_s, arriving=True))
        return room

    def broke_off(self, key: K, size_bytes: int, now_s: float) -> None:
        """It did not arrive, but this much of it is kept for the next attempt."""
        entry = self._entries[key]
        if not entry.arriving or size_bytes > entry.size_bytes:
            raise ValueError(f"{key} had {entry.size_bytes} bytes of room on its way, {size_bytes} are left of it")
        self.drop(key)
        self._add(key, _Entry(size_bytes, now_s, broken_off=True))

    def arrived(self, key: K, size_bytes: int, now_s: float) -> Room[K] | NoRoom:
        """It is here, and this is its true size. After NoRoom it is no longer in the table."""
        entry = self._entries[key]
        if not entry.arriving:
            raise ValueError(f"{key} was not on its way")
        room = self._make_room(size_bytes - entry.size_bytes, frozenset({key}))
        self.drop(key)
        if isinstance(room, Room):
            self._add(key, _Entry(size_bytes, now_s))
        return room

    def adopt(self, key: K, size_bytes: int, now_s: float) -> Room[K] | NoRoom:
        """Something that was found in place at start."""
        room = self.reserve(key, size_bytes, now_s)
        if isinstance(room, Room):
            self.arrived(key, size_bytes, now_s)
        return room

    def adopt_broken_off(self, key: K, size_bytes: int, now_s: float) -> Room[K] | NoRoom:
        """What is left, since before the start, of something that broke off."""
        room = self.reserve(key, size_bytes, now_s)
        if isinstance(room, Room):
            self.broke_off(key, size_bytes, now_s)
        return room

    def touch(self, key: K, now_s: float) -> None:
        self._entries[key].last_used_s = now_s

    def pin(self, key: K) -> None:
        self._entries[key].pins += 1

    def unpin(self, key: K) -> None:
        entry = self._entries[key]
        if entry.pins < 1:
            raise ValueError(f"{key} is not pinned")
        entry.pins -= 1

    def drop(self, key: K) -> None:
        """Forget it; the caller removes the bytes. Pinned things cannot be dropped."""
        entry = self._entries[key]
        if entry.pins:
            raise ValueError(f"{key} is pinned {entry.pins} times")
        del self._entries[key]
        self._used_bytes -= entry.size_bytes

    def holds(self, key: K) -> bool:
        """It is there, whole."""
        entry = self._entries.get(key)
        return entry is not None and entry.whole

    def counts(self, key: K) -> bool:
        """Some of it is there, or on its way."""
        return key in self._entries

    def in_use(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and (entry.arriving or entry.pins > 0)

    @property
    def all_in_use(self) -> frozenset[K]:
        return frozenset(key for key, entry in self._entries.items() if entry.arriving or entry.pins)

    @property
    def busy(self) -> bool:
        """Something is pinned or on its way."""
        return any(entry.arriving or entry.pins for entry in self._entries.values())

    @property
    def held(self) -> tuple[K, ...]:
        return tuple(key for key, entry in self._entries.items() if entry.whole)

    def stale(self, before_s: float) -> tuple[K, ...]:
        """What broke off so long ago that nobody seems to want the rest."""
        return tuple(key for key, e in self._entries.items() if e.broken_off and e.last_used_s < before_s)

    @property
    def used_bytes(self) -> int:
        """With what is on its way or broke off."""
        return self._used_bytes

    def broken_invariants(self) -> Sequence[str]:
        """What should be true and is not, re-derived from the entries alone."""
        total = sum(entry.size_bytes for entry in self._entries.values())
        broken = [] if total == self._used_bytes else [f"{self._used_bytes} bytes counted, {total} held"]
        if total > self.budget_bytes:
            broken.append(f"{total} bytes held, the budget is {self.budget_bytes}")
        return [*broken, *(f"{key} has {e.pins} pins" for key, e in self._entries.items() if e.pins < 0)]

    def _make_room(self, size_bytes: int, keep: Collection[K]) -> Room[K] | NoRoom:
        missing = self._used_bytes + size_bytes - self.budget_bytes
        evict: list[K] = []
        for key in self._evictable(keep) if missing > 0 else ():
            if missing <= 0:
                break
            evict.append(key)
            missing -= self._entries[key].size_bytes
        if missing > 0:
            return NoRoom(
                reason=f"{size_bytes} bytes do not fit: {missing} too many for the budget of {self.budget_bytes},"
                " and the rest is in use"
            )
        for key in evict:
            self.drop(key)
        return Room(evict=tuple(evict), reason=f"evicted {len(evict)}" if evict else "fits")

    def _evictable(self, keep: Collection[K]) -> list[K]:
        idle = [
            (key in self.preferred, entry.last_used_s, at, key)
            for at, (key, entry) in enumerate(self._entries.items())
            if not entry.arriving and not entry.pins and key not in keep
        ]
        return [key for *_, key in sorted(idle, key=lambda each: each[:3])]

    def _add(self, key: K, entry: _Entry) -> None:
        self._entries[key] = entry
        self._used_bytes += entry.size_bytes
