"""What explains measurements best, without times below zero, and whatever the machine did meanwhile."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from loadtest.calibration.least_squares import Floats, not_negative, steady


def _best_of_all(design: Floats, wanted: Floats) -> float:
    """The least squares of every choice of columns that leaves nothing below zero, by trying all."""
    least = float(wanted @ wanted)
    columns = range(design.shape[1])
    for chosen in itertools.chain.from_iterable(itertools.combinations(columns, n + 1) for n in columns):
        some = design[:, chosen]
        found = np.linalg.lstsq(some, wanted, rcond=None)[0]
        if (found >= 0).all():
            least = min(least, float(((wanted - some @ found) ** 2).sum()))
    return least


def test_nothing_takes_less_than_no_time() -> None:
    design, wanted = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([3.0, 2.0, 1.0])
    assert not_negative(design, wanted).tolist() == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_of_what_takes_time_explains_more(seed: int) -> None:
    draw = np.random.default_rng(seed)
    design = draw.normal(size=(8, 4)) * np.array([1e-6, 1.0, 1e3, 1e6])  # as a pair and a step differ
    wanted = draw.normal(size=8)
    found = not_negative(design, wanted)
    assert (found >= 0).all()
    left = wanted - design @ found
    assert float(left @ left) == pytest.approx(_best_of_all(design, wanted), rel=1e-6)


def test_what_explains_nothing_is_nothing() -> None:
    assert not_negative(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([-1.0, -2.0])).tolist() == [0.0, 0.0]


def test_measurements_that_are_far_off_pull_no_harder_than_others() -> None:
    draw = random.Random(1)
    design = np.array([[1.0, float(at % 10)] for at in range(100)])
    noise = [draw.gauss(0.0, 0.1) + (50.0 if at % 12 == 0 else 0.0) for at in range(100)]
    assert steady(design, design @ np.array([3.0, 2.0]) + noise).tolist() == pytest.approx([3.0, 2.0], abs=0.1)
