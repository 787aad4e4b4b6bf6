"""What requests in company cost each other, from what they saw."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.company import ENOUGH, Met, fit_beside, fit_crowd, fit_line, met
from loadtest.calibration.played import played_s
from loadtest.calibration.seen import Seen
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import MeasuredTable, Timing

STEP_S, PROMPT_S, WAY_S = 0.001, 0.002, 0.002
TABLE = MeasuredTable(rows=(1, 2), prefill_tokens=(0, 2), mean_s=((STEP_S, STEP_S + PROMPT_S),) * 2)
TIMING = Timing(steps=TABLE, gateway_s=0.001, bus_s=0.0, worker_s=0.0, relay_s=0.001, in_line=True)
SHAPE = BatchShape(chunk_tokens=512)


def _seen(at: int, sent_s: float, ttft_s: float, lasts_s: float = 0.0, tokens: int = 1) -> Seen:
    return Seen(
        request_id=f"r{at}", adapter=at, planned_s=sent_s, sent_s=sent_s, first_s=sent_s + ttft_s,
        ended_s=sent_s + ttft_s + lasts_s, outcome="ok", tier="gpu", replica=f"replica-{at % 2}", prompt_tokens=2,
        tokens=tokens, attempts=1,
    )  # fmt: skip


def _volley(line_s: float) -> list[Seen]:
    """Eight of one moment, who share so much work each by turns, and no steps."""
    seen = [_seen(at, 0.0, WAY_S + 7 * line_s + STEP_S + PROMPT_S) for at in range(8)]
    return [msgspec.structs.replace(each, replica=f"replica-{at}") for at, each in enumerate(seen)]


def test_how_much_of_a_way_is_work_by_turns_is_found() -> None:
    assert fit_line([_volley(0.0008)] * 3, TIMING, SHAPE) == pytest.approx(0.0008, rel=0.01)


def test_a_volley_that_the_machine_disturbed_does_not_count_for_more_than_another() -> None:
    disturbed = [msgspec.structs.replace(each, first_s=9.0) for each in _volley(0.0008)]
    assert fit_line([_volley(0.0008)] * 3 + [disturbed], TIMING, SHAPE) == pytest.approx(0.0008, rel=0.01)


def test_what_a_volley_waits_for_steps_is_no_line() -> None:
    """All come while the first one's step is under way, and are computed in the next."""
    slow = msgspec.structs.replace(TIMING, steps=msgspec.structs.replace(TABLE, mean_s=((0.050, 0.050),) * 2))
    assert fit_line([[_seen(at, 0.0, WAY_S + 0.050) for at in range(8)]], slow, SHAPE) == pytest.approx(0.0, abs=0.0001)


def test_no_more_than_the_whole_way_is_work() -> None:
    assert fit_line([_volley(0.010)], TIMING, SHAPE) == pytest.approx(TIMING.gateway_s, rel=0.01)


def test_without_a_volley_nothing_is_known() -> None:
    assert fit_line([], TIMING, SHAPE) is None


def test_volleys_of_several_sizes_agree_on_one_line() -> None:
    timing = msgspec.structs.replace(TIMING, line_s=0.0006)
    volleys = []
    for size, count in ((2, 8), (40, 8), (100, 4)) * 3:
        asked = [msgspec.structs.replace(_seen(at, 0.0, 0.0), prompt_tokens=size) for at in range(count)]
        volleys.append(_as_played(asked, timing, seed=len(volleys)))
    assert fit_line(volleys, TIMING, SHAPE) == pytest.approx(0.0006, rel=0.15)


@pytest.mark.parametrize("crowd_share", [0.0, 0.6])
def test_by_how_much_a_prompt_takes_longer_beside_answers_is_found(crowd_share: float) -> None:
    scenes = [_scene(crowd_share, answers, seed) for seed in range(3) for answers in (1, 2, 5)]
    assert fit_crowd(scenes, TIMING, SHAPE) == pytest.approx(crowd_share, abs=0.02)


def test_a_question_that_the_machine_disturbed_says_no_more_than_another() -> None:
    scenes = [_scene(0.6, 2, seed) for seed in range(6)]
    *given, question = scenes[0]
    disturbed = [*given, msgspec.structs.replace(question, first_s=9.0)]
    assert fit_crowd([*scenes, disturbed, disturbed], TIMING, SHAPE) == pytest.approx(0.6, abs=0.02)


def test_without_a_question_nobody_crowds() -> None:
    assert fit_crowd([], TIMING, SHAPE) == 0.0


def _scene(crowd_share: float, answers: int, seed: int) -> list[Seen]:
    """Long answers by both replicas in turn, and a long prompt meanwhile, as the twin itself would have it."""
    given = [_seen(at, 0.005 * at, 0.0, tokens=160) for at in range(answers)]
    question = msgspec.structs.replace(_seen(answers, 0.060, 0.0), prompt_tokens=2_000)
    return _as_played([*given, question], msgspec.structs.replace(TIMING, crowd_share=crowd_share), seed)


def _as_played(asked: list[Seen], timing: Timing, seed: int) -> list[Seen]:
    ttfts_s = played_s(asked, timing, SHAPE, seed)
    return [msgspec.structs.replace(one, first_s=one.sent_s + s) for one, s in zip(asked, ttfts_s, strict=True)]


def test_who_computes_beside_a_request_is_seen() -> None:
    long = _seen(0, 0.0, 0.010, lasts_s=1.0, tokens=100)
    beside, after = _seen(1, 0.5, 0.012), _seen(3, 2.0, 0.007)
    found = met([long, beside, after], TABLE, 512)
    assert [each.beside for each in found] == [0, 1, 0]
    assert [each.overhead_s for each in found] == pytest.approx([0.007, 0.009, 0.004])


def test_what_a_replica_that_computes_costs_is_found() -> None:
    found = [Met(overhead_s=0.004 + 0.002 * (at % 3), beside=at % 3) for at in range(9 * ENOUGH)]
    assert fit_beside(found) == pytest.approx(0.002, rel=0.01)


def test_what_its_steps_took_longer_is_not_the_way() -> None:
    crowded = [
        Met(overhead_s=0.004 + (0.002 + 0.5 * 0.010) * (at % 2), beside=at % 2, steps_s=0.010) for at in range(40)
    ]
    assert fit_beside(crowded, crowd_share=0.5) == pytest.approx(0.002, rel=0.01)


@pytest.mark.parametrize("beside", [0, 1])
def test_too_few_say_nothing(beside: int) -> None:
    many = [Met(overhead_s=0.004 + 0.002 * beside, beside=beside)] * 50
    few = [Met(overhead_s=0.004 + 0.002 * (1 - beside), beside=1 - beside)] * (ENOUGH - 1)
    assert fit_beside(many + few) == 0.0
    assert fit_beside(many + few + few) == pytest.approx(0.002)
