"""Which owner keeps a slot for which busy adapter: decided over the whole pool, the hottest first.

Steady traffic goes to the owner that has the adapter resident. So one slot is enough for most; whoever needs several
owners for its traffic gets a slot on that many, and a pinned adapter on all. An owner whose slots are taken by hotter
ones leaves it to the next owner: that is what spreads busy adapters that would push each other out on one replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

Owners = tuple[str, ...]


class Busy(msgspec.Struct, frozen=True):
    """One adapter that should have `slots` slots among its `owners`, the first ones first."""

    adapter_id: str
    pinned: bool
    heat: int
    owners: Owners
    slots: int


def given(busy: Iterable[Busy], slots: Mapping[str, int], before: Mapping[str, Owners]) -> dict[str, Owners]:
    """The owners that keep a slot, by adapter; who got none is named with none. `slots` are each replica's. Whoever
    had a slot keeps it as long as it is not a hotter one's turn."""
    free = dict(slots)
    found = {}
    for one in sorted(busy, key=lambda one: (not one.pinned, -one.heat, one.adapter_id)):
        had = before.get(one.adapter_id, ())
        order = [name for name in one.owners if name in had] + [name for name in one.owners if name not in had]
        takers = [name for name in order if free.get(name, 0) > 0][: one.slots]
        for name in takers:
            free[name] -= 1
        found[one.adapter_id] = tuple(takers)
    return found


def wanted(busy: Iterable[Busy]) -> int:
    """How many slots it would take to give everybody what it should have."""
    return sum(min(one.slots, len(one.owners)) for one in busy)
