"""Numbered replicas, of which only the highest can go."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from services.autoscaler.core.ordinals import count_after

FOUR = ("r-0", "r-1", "r-2", "r-3")


@pytest.mark.parametrize(
    ("desired", "remove", "count"),
    [
        (6, (), 6),
        (4, (), 4),
        (3, (), 4),  # nobody is named, so nobody goes
        (3, ("r-3",), 3),
        (2, ("r-3", "r-2"), 2),
        (3, ("r-1",), 4),  # it is not the highest, and r-3 still serves
        (2, ("r-3", "r-1"), 3),  # r-1 waits for r-2
        (5, ("r-3",), 5),  # it is taken back: more are needed than there are
        (0, FOUR, 0),
    ],
)
def test_the_highest_go_as_far_as_they_are_named(desired: int, remove: Collection[str], count: int) -> None:
    assert count_after(FOUR, desired, remove) == count
