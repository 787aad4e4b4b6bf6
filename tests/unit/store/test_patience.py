"""How long a store is asked again: pure figures."""

from __future__ import annotations

from shared.store.patience import Patience


def test_waits_double_up_to_the_longest_and_end() -> None:
    patience = Patience(attempts=6, first_s=0.5, longest_s=3.0, draw=lambda: 1.0)
    assert [patience.wait_s(failures) for failures in range(1, 7)] == [0.5, 1.0, 2.0, 3.0, 3.0, None]


def test_a_wait_is_anything_from_nothing_to_the_whole() -> None:
    draws = iter([0.0, 0.25, 1.0])
    patience = Patience(first_s=4.0, draw=lambda: next(draws))
    assert [patience.wait_s(1) for _ in range(3)] == [0.0, 1.0, 4.0]


def test_a_single_attempt_is_not_repeated() -> None:
    assert Patience(attempts=1).wait_s(1) is None
