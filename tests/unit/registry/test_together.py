"""What may be on its way to the bus at once: never two writes of a key, never anything beside a removal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.together import Saying, groups

FACT = Saying()


def value(key: str) -> Saying:
    return Saying(key=("alias", key))


def removal(key: str) -> Saying:
    return Saying(key=("alias", key), removes=True)


def test_facts_and_values_of_different_keys_go_together() -> None:
    assert groups([FACT, value("a"), FACT, value("b"), FACT]) == [5]


def test_a_second_value_of_a_key_waits_for_the_first() -> None:
    assert groups([value("a"), value("b"), value("a"), value("b")]) == [2, 2]


def test_a_removal_goes_alone() -> None:
    assert groups([value("a"), removal("a"), value("a")]) == [1, 1, 1]
    assert groups([FACT, removal("a"), removal("b"), FACT, FACT]) == [1, 1, 1, 2]


def test_nothing_is_no_group() -> None:
    assert groups([]) == []


sayings = st.builds(lambda key, removes: Saying(key=key and (key,), removes=removes and key is not None),
                    st.sampled_from([None, "a", "b", "c"]), st.booleans())  # fmt: skip


@given(st.lists(sayings))
def test_every_row_is_in_one_group_and_no_group_is_unsafe(rows: list[Saying]) -> None:
    sizes = groups(rows)
    assert sum(sizes) == len(rows)
    assert all(size > 0 for size in sizes)
    begin = 0
    for size in sizes:
        group = rows[begin : begin + size]
        keys = [row.key for row in group if row.key is not None]
        assert len(keys) == len(set(keys))
        assert len(group) == 1 or not any(row.removes for row in group)
        begin += size
