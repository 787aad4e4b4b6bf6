"""Seats are thought through again only where something has changed, and nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest

from services.placement.core.needs import NeedPolicy
from services.placement.core.seating import Guests, Seating, seated
from shared.hashing import rank
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


@pytest.mark.parametrize(("others", "slots_of_the_hot"), [(2_590, 6), (2_570, 24)])
def test_a_customer_with_24_owners_takes_no_slot_that_another_one_needs(others: int, slots_of_the_hot: int) -> None:
    """2,000 tokens/s on 26 replicas with 2,600 slots: while those are scarce it has as many as would do at 70 %."""
    replicas, names = dict.fromkeys((f"r{at}" for at in range(26)), 100), [f"a{at}" for at in range(others)]
    weights = dict.fromkeys(replicas, 1.0)
    now = Guests(
        records={name: adapter(name) for name in ("hot", *names)},
        holders={"hot": tuple(rank("hot", weights)[:24]), **{name: tuple(rank(name, weights)[:2]) for name in names}},
        heats={"hot": 14, **{name: 13 - (at + 1).bit_length() for at, name in enumerate(names)}},
        pinned=frozenset(),
        owners={"hot": 24},
        slots=replicas,
    )
    slotted = seated(Seating(), now, POLICY).slotted
    assert len(slotted["hot"]) == slots_of_the_hot
    assert all(slotted[name] for name in names)
