"""Known times in, the same times out."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.fitting import Steps, apart, decodings, fit_steps, lone, shares
from loadtest.calibration.prompts import PromptTimes, TooLittleSeen, fit_prompts
from loadtest.calibration.seen import Seen
from tests.unit.calibration.engines import CHUNK_TOKENS, KnownTimes, lone_of, seen_of

TIMES = KnownTimes()
PROMPTS = fit_prompts(lone_of(TIMES), CHUNK_TOKENS)


def _fitted(seen: list[Seen], prompts: PromptTimes = PROMPTS) -> Steps:
    return fit_steps(decodings(seen, CHUNK_TOKENS), prompts)


def test_the_times_of_steps_are_found_again() -> None:
    found = _fitted(seen_of(TIMES, requests=400, rate_per_s=4.0))
    for rows, step_s in zip(found.rows[:3], found.step_s, strict=False):
        assert step_s == pytest.approx(TIMES.step_s(rows, []), rel=0.1)
    assert found.spread < 0.2


def test_prompts_that_take_longer_in_company_are_not_put_down_to_rows() -> None:
    crowded = KnownTimes(prompt_s=0.010, prompt_token_s=0.0002)
    found = _fitted(seen_of(crowded, requests=400, rate_per_s=4.0))
    for rows, step_s in zip(found.rows[:3], found.step_s, strict=False):
        assert step_s == pytest.approx(TIMES.step_s(rows, []), rel=0.15)


def test_the_table_says_what_was_fitted() -> None:
    prompts = PromptTimes(piece_s=0.012, token_s=0.0001, pair_s=1e-8)
    steps = Steps(rows=(1, 2), step_s=(0.010, 0.012), prompts=prompts, spread=0.1)
    table = steps.table(100)
    assert table.step_s(1, 0, 1) == pytest.approx(0.010)
    assert table.step_s(2, 100, 2) == pytest.approx(0.012 + 0.002 + 0.010)
    assert table.step_s(1, 50, 1) == pytest.approx(0.010 + 0.002 + 0.005)
    assert (table.pair_s, table.spread) == (1e-8, 0.1)


def test_a_few_requests_that_were_held_up_change_little() -> None:
    seen = seen_of(TIMES, requests=400, rate_per_s=4.0)
    late = [_later(each, 0.5) if at % 40 == 0 else each for at, each in enumerate(seen)]
    assert _fitted(late).step_s[0] == pytest.approx(_fitted(seen).step_s[0], rel=0.1)


def test_two_requests_are_too_few() -> None:
    with pytest.raises(TooLittleSeen, match="2 answers"):
        _fitted(seen_of(TIMES, requests=2, rate_per_s=1.0))


def test_whoever_was_alone_is_told_from_whoever_was_not() -> None:
    one = _request("r1", sent_s=0.0, first_s=0.1, ended_s=1.0)
    beside = _request("r2", sent_s=0.5, first_s=0.6, ended_s=0.7)
    elsewhere = msgspec.structs.replace(beside, request_id="r3", replica="replica-1")
    assert [each.request_id for each in lone([one, beside, elsewhere])] == ["r1", "r3"]


def test_a_request_that_moved_or_failed_says_nothing_of_steps() -> None:
    moved = msgspec.structs.replace(_request("r1", sent_s=0.0, first_s=0.1, ended_s=1.0), attempts=2)
    failed = msgspec.structs.replace(_request("r2", sent_s=2.0, first_s=2.1, ended_s=3.0), outcome="cut off")
    assert decodings([moved, failed], CHUNK_TOKENS) == []


def test_rows_and_prompts_beside_a_request_are_counted() -> None:
    one = _request("r1", sent_s=0.0, first_s=1.0, ended_s=2.0)
    half = _request("r2", sent_s=1.2, first_s=1.5, ended_s=3.0)
    [first, _] = decodings([one, half], CHUNK_TOKENS)
    assert first.rows == pytest.approx(1.5 + 1 / 19)
    assert (first.pieces, first.prompt_tokens) == (1, 40)


def test_between_two_knots_both_have_their_share() -> None:
    assert shares(3.0, (1, 2, 4)) == pytest.approx([0.0, 0.5, 0.5])
    assert shares(6.0, (1, 2, 4)) == pytest.approx([0.0, -1.0, 2.0])


def _request(name: str, *, sent_s: float, first_s: float, ended_s: float) -> Seen:
    return Seen(
        request_id=name, adapter=0, planned_s=sent_s, sent_s=sent_s, first_s=first_s, ended_s=ended_s, outcome="ok",
        tier="gpu", replica="replica-0", prompt_tokens=40, tokens=20, attempts=1,
    )  # fmt: skip


def _later(each: Seen, late_s: float) -> Seen:
    return msgspec.structs.replace(each, ended_s=each.ended_s + late_s)


def test_whoever_came_with_another_was_not_apart_even_on_another_replica() -> None:
    one = _request("r1", sent_s=0.0, first_s=0.1, ended_s=1.0)
    elsewhere = msgspec.structs.replace(_request("r2", sent_s=0.01, first_s=0.1, ended_s=1.0), replica="replica-1")
    later = msgspec.structs.replace(_request("r3", sent_s=3.0, first_s=3.1, ended_s=4.0), replica="replica-1")
    assert [each.request_id for each in apart([one, elsewhere, later])] == ["r3"]
