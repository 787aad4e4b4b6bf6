"""Which owner keeps a slot for which busy adapter: decided over the whole pool, the hottest first.

Steady traffic goes to the owner that has the adapter resident. So one slot is enough for most; whoever needs several
owners for its traffic gets a slot on that many, and a pinned adapter on all. An owner whose slots are taken by hotter
ones leaves it to the next owner: that is what spreads busy adapters that would push each other out on one replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

Owners = tuple[str, ...]


class Busy(msgspec.Struct, frozen=True):
    """One adapter that should have `slots` slots among its `owners`, the first ones first, and makes good use of as
    many as `most` while others need none of them."""

    adapter_id: str
    pinned: bool
    heat: int
    owners: Owners
    slots: int
    most: int = 0


def given(busy: Iterable[Busy], slots: Mapping[str, int], before: Mapping[str, Owners]) -> dict[str, Owners]:
    """The owners that keep a slot, by adapter; who got none is named with none. `slots` are each replica's. Whoever
    had a slot keeps it as long as it is not a hotter one's turn; for one whose owners are all full, another moves on to
    an owner of its own that is not."""
    table = _Table(slots)
    for one in sorted(busy, key=_hottest_first):
        had = before.get(one.adapter_id, ())
        order = [name for name in one.owners if name in had] + [name for name in one.owners if name not in had]
        takers = [name for name in order if table.free.get(name, 0) > 0][: one.slots]
        table.seat(one, takers or table.room_for(one))
    return table.takers


def backed(busy: Sequence[Busy], spare: int) -> list[Busy]:
    """With the slots that they make good use of for the hottest, as far as `spare` ones go: their traffic can go to
    several owners, then, and whoever has least to do gets it without loading anything."""
    slots = {}
    for one in sorted(busy, key=_hottest_first):
        more = min(one.most, len(one.owners)) - one.slots
        if 0 < more <= spare:
            slots[one.adapter_id] = one.slots + more
            spare -= more
    return [msgspec.structs.replace(one, slots=slots.get(one.adapter_id, one.slots)) for one in busy]


def _hottest_first(one: Busy) -> tuple[bool, int, str]:
    return not one.pinned, -one.heat, one.adapter_id


class _Table:
    """Who has which slot while they are given out."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.free = dict(slots)
        self.takers: dict[str, Owners] = {}
        self._left = sum(slots.values())
        self._seated: dict[str, list[Busy]] = {}

    def seat(self, one: Busy, names: Iterable[str]) -> None:
        self.takers[one.adapter_id] = tuple(names)
        for name in self.takers[one.adapter_id]:
            self.free[name] -= 1
            self._left -= 1
            self._seated.setdefault(name, []).append(one)

    def room_for(self, one: Busy) -> Owners:
        """An owner's slot that somebody gives up for one of a replica with a free slot."""
        for name in one.owners if self._left else ():
            for other in self._seated.get(name, ()):
                spare = next((owner for owner in other.owners if self._is_open_to(other, owner)), None)
                if spare is not None:
                    self._move(other, name, spare)
                    return (name,)
        return ()

    def _is_open_to(self, one: Busy, name: str) -> bool:
        return self.free.get(name, 0) > 0 and name not in self.takers[one.adapter_id]

    def _move(self, one: Busy, old: str, new: str) -> None:
        self.takers[one.adapter_id] = tuple(new if name == old else name for name in self.takers[one.adapter_id])
        self._seated[old].remove(one)
        self._seated.setdefault(new, []).append(one)
        self.free[old] += 1
        self.free[new] -= 1


def wanted(busy: Iterable[Busy]) -> int:
    """How many slots it would take to give everybody what it should have."""
    return sum(min(one.slots, len(one.owners)) for one in busy)
