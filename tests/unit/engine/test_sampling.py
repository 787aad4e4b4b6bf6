"""Draws: keyed by (seed, position), and distributed as the logits say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.engine.torch import sampling
from services.replica_worker.engine.torch.sampling import sample, uniform

PROBABILITIES = (0.5, 0.25, 0.15, 0.07, 0.03)
LOGITS = torch.tensor([math.log(p) for p in PROBABILITIES])
DRAWS = [uniform(seed, position) for seed in range(40) for position in range(50)]


def shares(temperature: float, top_p: float) -> list[float]:
    picked = [sample(LOGITS, temperature, top_p, draw) for draw in DRAWS]
    return [picked.count(token) / len(picked) for token in range(len(PROBABILITIES))]


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    assert uniform(1, 2) == uniform(1, 2)
    assert len({uniform(seed, position) for seed in range(30) for position in range(30)}) == 900


@given(seed=st.integers(-(2**63), 2**64 - 1), position=st.integers(0, 10**6))
def test_a_draw_is_in_the_unit_interval_for_any_seed(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


def test_draws_are_even() -> None:
    assert sum(DRAWS) / len(DRAWS) == pytest.approx(0.5, abs=0.02)


def test_tokens_come_as_often_as_they_are_likely() -> None:
    assert shares(1.0, 1.0) == pytest.approx(PROBABILITIES, abs=0.03)


def test_a_low_temperature_sharpens_and_a_high_one_flattens() -> None:
    assert shares(0.1, 1.0)[0] > 0.99
    assert shares(50.0, 1.0) == pytest.approx([0.2] * 5, abs=0.04)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    assert shares(1.0, 0.7) == pytest.approx([2 / 3, 1 / 3, 0, 0, 0], abs=0.03)
    assert shares(1.0, 0.76)[2] > 0
    assert shares(1.0, 0.0) == [1, 0, 0, 0, 0]


def test_top_p_of_a_flat_distribution_looks_at_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = shares(1.0, 0.96)
    monkeypatch.setattr(sampling, "_CANDIDATES", 2)
    assert shares(1.0, 0.96) == honest
    assert honest[3] > 0


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.floats(1e-4, 5.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_any_finite_logits_give_a_token(logits: list[float], temperature: float, top_p: float, draw: float) -> None:
    assert 0 <= sample(torch.tensor(logits), temperature, top_p, draw) < len(logits)
