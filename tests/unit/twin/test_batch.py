"""The twin's engine does what the real scheduling does, step for step."""

from __future__ import annotations

import pytest

from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import StepTable
from tests.unit.twin.engines import Ask, Times, asks, through_the_engine, through_the_twin

LOOSE = BatchShape(max_rows=8, chunk_tokens=256, kv_tokens=16_000, prefix_cache=False)
TIGHT = BatchShape(max_rows=8, chunk_tokens=256, kv_tokens=1_600, prefix_cache=False)


def assert_alike(twin: list[Times], engine: list[Times]) -> None:
    for at, (ours, real) in enumerate(zip(twin, engine, strict=True)):
        assert (ours.first_s is None, ours.last_s is None) == (real.first_s is None, real.last_s is None), at
        for mine, theirs in ((ours.first_s, real.first_s), (ours.last_s, real.last_s)):
            assert mine == pytest.approx(theirs, abs=1e-6), f"request {at}: {ours} and {real}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate_per_s", [0.8, 4.0])
def test_every_token_comes_when_it_comes_from_the_real_engine(seed: int, rate_per_s: float) -> None:
    asked = asks(seed, 60, rate_per_s)
    assert_alike(through_the_twin(asked, LOOSE), through_the_engine(asked, LOOSE))


@pytest.mark.parametrize("seed", range(3))
def test_the_youngest_makes_room_in_a_full_cache_as_in_the_real_engine(seed: int) -> None:
    asked = asks(seed, 60, 4.0, longest=700)
    assert_alike(through_the_twin(asked, TIGHT), through_the_engine(asked, TIGHT))


def test_a_long_prompt_takes_longer_by_each_token_s_pairs_however_it_is_cut() -> None:
    asked, steps = [Ask(at_s=0.0, prompt_tokens=640, output_tokens=2)], StepTable(pair_s=1e-6)
    [plain], [attending] = through_the_twin(asked, LOOSE), through_the_twin(asked, LOOSE, steps)
    assert plain.first_s is not None
    assert attending.first_s is not None
    assert attending.first_s == pytest.approx(plain.first_s + 640**2 / 2 * 1e-6)
    assert attending.last_s == pytest.approx(attending.first_s + 0.050)


def test_a_request_waits_for_the_end_of_the_step_and_no_longer() -> None:
    asked = [
        Ask(at_s=0.0, prompt_tokens=16, output_tokens=100),
        Ask(at_s=1.013, prompt_tokens=80, output_tokens=2),
    ]
    times = through_the_twin(asked, LOOSE)
    border_s = 0.052 + 20 * 0.050
    assert times[1].first_s == pytest.approx(border_s + 0.050 + 80 / 8_000)
    assert times[0].last_s == pytest.approx(0.052 + 99 * 0.050 + 80 / 8_000)
