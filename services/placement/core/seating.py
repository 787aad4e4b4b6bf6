"""Who should have a slot and who keeps one, thought through again only where something has changed.

Giving slots out is one pass over all busy adapters, thousands of them, and most turns change nothing that it depends
on. A pass is skipped when all of that is as it was at the last one, and the last one moved nobody: who sits stays then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from services.placement.core import needs, slots
from services.placement.core.catalog import Records
from services.placement.core.needs import NeedPolicy, Needs
from services.placement.core.owners import Owners
from services.placement.core.slots import Busy

_BACKED = 2
"""Slots for a busy adapter while there are enough."""


class Guests(msgspec.Struct, frozen=True):
    """All that seats depend on: `owners` are how many each of the named needs for its traffic, `slots` each
    replica's."""

    records: Records
    holders: Mapping[str, Owners]
    heats: Mapping[str, int]
    pinned: AbstractSet[str]
    owners: Mapping[str, int]
    slots: Mapping[str, int]

    def is_as(self, other: Guests) -> bool:
        """The large ones are the same objects where nothing has changed."""
        return (
            self.records is other.records
            and self.holders is other.holders
            and self.heats is other.heats
            and self.pinned is other.pinned
            and self.owners == other.owners
            and self.slots == other.slots
        )


class Seating(msgspec.Struct, frozen=True):
    """`slotted`: the owners that keep a slot, by adapter. `settled`: another pass would give the same."""

    guests: Guests | None = None
    busy: tuple[Busy, ...] = ()
    slotted: Mapping[str, Owners] = {}
    settled: bool = False


def seated(before: Seating, guests: Guests, policy: NeedPolicy) -> Seating:
    if before.guests is not None and guests.is_as(before.guests):
        if before.settled:
            return before
        busy = before.busy
    else:
        busy = _backed(list(_busy(guests, policy)), guests)
    slotted = slots.given(busy, guests.slots, before.slotted)
    same = slotted == before.slotted
    return Seating(guests, busy, before.slotted if same else slotted, same)


def owners_of(needed: Needs) -> dict[str, int]:
    return {name: need.owners for name, need in needed.items()}


def _busy(guests: Guests, policy: NeedPolicy) -> Iterator[Busy]:
    """Only once a gateway may send traffic."""
    for name in guests.heats.keys() | guests.pinned:
        record = guests.records.get(name)
        if record is None or record.status != "active":
            continue
        held = guests.holders.get(name, ())
        owners, heat = guests.owners.get(name, 1), guests.heats.get(name, 0)
        wanted = len(held) if record.pinned else needs.least_slots(owners, policy)
        yield Busy(name, record.pinned, heat, held, wanted, max(_BACKED, owners) if heat else wanted)


def _backed(busy: list[Busy], guests: Guests) -> tuple[Busy, ...]:
    """With more slots for the hottest, once everybody could have one."""
    everybody = slots.wanted(busy) + len(guests.records) - len(busy)
    return tuple(slots.backed(busy, sum(guests.slots.values()) - everybody))
