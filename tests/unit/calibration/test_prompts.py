"""What a prompt takes is found again, also on a machine that does other things."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from loadtest.calibration.prompts import PromptTimes, TooLittleSeen, fit_prompts, pieces_of
from loadtest.calibration.seen import Seen
from loadtest.twin.timing import pairs
from tests.unit.calibration.engines import CHUNK_TOKENS, LENGTHS, KnownTimes, lone_of

QUADRATIC = KnownTimes(base_s=0.0008, row_s=0.0002, prompt_s=0.0005, prompt_token_s=7e-6, prompt_pair_s=2.5e-8)
"""About the tiny model's on a small machine: 800 tokens take 4 times as long as 200, and more."""


def _found(seen: list[Seen]) -> PromptTimes:
    return fit_prompts(seen, CHUNK_TOKENS)


def _took_s(times: PromptTimes, tokens: int) -> float:
    return times.work_s(pieces_of(tokens, CHUNK_TOKENS), tokens, pairs(0, tokens))


def _later(each: Seen, late_s: float) -> Seen:
    return msgspec.structs.replace(each, first_s=(each.first_s or 0.0) + late_s, ended_s=each.ended_s + late_s)


def test_what_was_planted_is_found() -> None:
    found = _found(lone_of(QUADRATIC))
    assert found.piece_s == pytest.approx(QUADRATIC.step_s(1, [0]), rel=0.01)
    assert found.token_s == pytest.approx(QUADRATIC.prompt_token_s, rel=0.01)
    assert found.pair_s == pytest.approx(QUADRATIC.prompt_pair_s, rel=0.01)


def test_where_attention_takes_no_time_none_is_found() -> None:
    assert _found(lone_of(replace(QUADRATIC, prompt_pair_s=0.0))).pair_s == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_found_in_noise_and_beside_outliers(seed: int) -> None:
    draw = random.Random(seed)
    noisy = [_later(each, draw.gauss(0.0, 0.0005)) for each in lone_of(QUADRATIC)]
    disturbed = [_later(each, 0.1) if at % 7 == seed else each for at, each in enumerate(noisy)]
    for found in (_found(noisy), _found(disturbed)):
        assert found.pair_s == pytest.approx(QUADRATIC.prompt_pair_s, rel=0.35)
        for tokens in LENGTHS[1:]:
            real_s = _took_s(_found(lone_of(QUADRATIC)), tokens)
            assert _took_s(found, tokens) == pytest.approx(real_s, rel=0.10, abs=0.0004)


def test_a_step_with_a_prompt_takes_no_less_than_one_without() -> None:
    steep = [_later(each, -1e-5 * each.prompt_tokens) for each in lone_of(QUADRATIC)]
    assert _found(steep).piece_s >= QUADRATIC.step_s(1, [])


def test_a_few_lengths_do_not_tell() -> None:
    with pytest.raises(TooLittleSeen, match="3 lengths of lone prompts"):
        _found(lone_of(QUADRATIC, sizes=(40, 41, 200, 800)))
    with pytest.raises(TooLittleSeen, match="0 lengths"):
        _found(lone_of(QUADRATIC, each=2))
    with pytest.raises(TooLittleSeen, match="0 lengths"):
        _found([msgspec.structs.replace(each, tokens=1) for each in lone_of(QUADRATIC)])
