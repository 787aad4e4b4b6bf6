"""Slots: nobody gives more than it has, the hottest come first, and as many as possible get one."""

from __future__ import annotations

from hypothesis import given as drawn
from hypothesis import strategies as st

from services.placement.core.slots import Busy, backed, given, wanted


def busy(adapter_id: str, *owners: str, heat: int = 1, slots: int = 1, pinned: bool = False, most: int = 0) -> Busy:
    return Busy(adapter_id, pinned, heat, owners, slots, most)


def test_the_hottest_get_their_first_owner_and_the_others_the_next() -> None:
    found = given([busy("cool", "r1", "r2"), busy("hot", "r1", "r2", heat=5)], {"r1": 1, "r2": 1}, {})
    assert found == {"hot": ("r1",), "cool": ("r2",)}


def test_who_needs_several_owners_gets_several_slots_and_a_pinned_one_comes_first() -> None:
    crowd = [busy("hot", "r1", "r2", "r3", heat=9, slots=3), busy("pinned", "r1", "r2", heat=0, slots=2, pinned=True)]
    found = given(crowd, {"r1": 1, "r2": 2, "r3": 1}, {})
    assert found == {"pinned": ("r1", "r2"), "hot": ("r2", "r3")}
    assert wanted(crowd) == 5


def test_a_slot_is_kept_where_it_is() -> None:
    found = given([busy("a", "r1", "r2")], {"r1": 1, "r2": 1}, {"a": ("r2", "gone")})
    assert found == {"a": ("r2",)}


def test_somebody_moves_on_for_one_whose_owners_are_full() -> None:
    found = given([busy("a", "r1", "r2", heat=5), busy("b", "r1")], {"r1": 1, "r2": 1}, {})
    assert found == {"a": ("r2",), "b": ("r1",)}


def test_the_hottest_get_more_slots_of_those_that_nobody_needs() -> None:
    crowd = [busy("warm", "r1", "r2", heat=2, most=2), busy("hot", "r1", "r2", "r3", heat=5, most=3)]
    assert backed(crowd, 0) == crowd
    assert [one.slots for one in backed(crowd, 1)] == [2, 1]
    assert [one.slots for one in backed(crowd, 2)] == [1, 3]
    assert [one.slots for one in backed(crowd, 9)] == [2, 3]


def test_nobody_gets_more_slots_than_it_has_owners_or_makes_use_of() -> None:
    crowd = [busy("alone", "r1", most=4), busy("pinned", "r1", "r2", heat=0, slots=2, pinned=True)]
    assert backed(crowd, 9) == crowd


CROWDS = st.lists(
    st.tuples(
        st.permutations(["r0", "r1", "r2", "r3"]),
        st.integers(1, 4),
        st.integers(0, 5),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=16,
)


@drawn(CROWDS, st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_no_replica_gives_more_than_it_has_and_none_is_left_that_an_owner_could_give(
    drawn_crowd: list[tuple[list[str], int, int, int, bool]], counts: list[int]
) -> None:
    crowd = [
        busy(f"a{at}", *order[:owners], heat=heat, slots=owners if pinned else slots, pinned=pinned)
        for at, (order, owners, heat, slots, pinned) in enumerate(drawn_crowd)
    ]
    slots = {f"r{at}": count for at, count in enumerate(counts)}
    found = given(crowd, slots, {})
    free = {name: count - sum(name in takers for takers in found.values()) for name, count in slots.items()}
    assert min(free.values()) >= 0
    for one in crowd:
        takers = found[one.adapter_id]
        assert len(set(takers)) == len(takers) <= one.slots
        assert set(takers) <= set(one.owners)
        assert takers or not any(free[name] for name in one.owners)
    assert given(crowd, slots, found) == given(crowd, slots, given(crowd, slots, found))
