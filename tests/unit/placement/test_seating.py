"""Seats are thought through again only where something has changed, and nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest

from services.placement.core.needs import NeedPolicy
from services.placement.core.seating import Guests, Seating, seated
from tests.simulation.speakers import adapter

POLICY = NeedPolicy()
NAMES = tuple(f"a{number}" for number in range(24))
RECORDS = {name: adapter(name) for name in NAMES}


def guests(draw: random.Random, slots: Mapping[str, int]) -> Guests:
    owners = {name: draw.choice([1, 1, 2, 4, 8]) for name in NAMES}
    return Guests(
        records=RECORDS,
        holders={
            name: tuple(draw.sample(sorted(slots), min(len(slots), max(2, count)))) for name, count in owners.items()
        },
        heats={name: draw.randrange(4) for name in NAMES},
        pinned=frozenset(draw.sample(NAMES, 2)),
        owners={name: count for name, count in owners.items() if count > 1},
        slots=slots,
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_pass_that_is_skipped_would_have_moved_nobody(seed: int) -> None:
    draw = random.Random(seed)
    quick = slow = Seating()
    for _ in range(20):
        now = guests(draw, {f"r{number}": draw.randint(1, 8) for number in range(6)})
        for _ in range(5):
            quick = seated(quick, now, POLICY)
            slow = seated(Seating(slotted=slow.slotted), now, POLICY)
            assert (quick.busy, quick.slotted) == (slow.busy, slow.slotted)


def test_a_settled_seating_stays_the_same_object_until_something_changes() -> None:
    now = guests(random.Random(1), {"r0": 4, "r1": 40})
    settled = seated(seated(seated(Seating(), now, POLICY), now, POLICY), now, POLICY)
    same = msgspec.structs.replace(now, owners=dict(now.owners), slots=dict(now.slots))
    assert seated(settled, same, POLICY) is settled
    more = msgspec.structs.replace(now, slots={"r0": 5, "r1": 40})
    assert seated(settled, more, POLICY) is not settled
