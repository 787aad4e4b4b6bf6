"""What requests in company cost each other, from what they saw."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.company import (
    ENOUGH,
    crowded,
    fit_beside,
    fit_crowd,
    fit_line,
    in_company,
    undisturbed_s,
)
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
    scenes = [_question(answers, seed, crowd_share=crowd_share) for seed in range(3) for answers in (1, 2, 5)]
    assert _crowd(scenes) == pytest.approx(crowd_share, abs=0.02)


def test_what_the_machine_disturbed_does_not_count() -> None:
    scenes = [_question(2, seed, crowd_share=0.6) for seed in range(19)]
    *given, question = scenes[0]
    disturbed = [*given, msgspec.structs.replace(question, first_s=9.0)]
    assert _crowd([*scenes, disturbed]) == pytest.approx(0.6, abs=0.02)


def test_a_few_that_were_held_up_for_long_count_as_much_as_many_that_were_not() -> None:
    """A median would say that nothing holds anybody up, and leave the twin without their tail."""
    scenes = [_question(2, seed, crowd_share=1.2 if seed % 3 == 0 else 0.0) for seed in range(18)]
    assert _crowd(scenes) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("beside_s", [0.0, 0.0006])
def test_how_much_longer_a_way_in_company_is_is_found(beside_s: float) -> None:
    scenes = [_question(answers, seed, beside_s=beside_s) for seed in range(3) for answers in (1, 2, 5)]
    assert _beside_s(scenes) == pytest.approx(beside_s, abs=0.00002)


def test_no_way_becomes_more_than_twice_as_long() -> None:
    late = [msgspec.structs.replace(each, first_s=(each.first_s or 0.0) + 0.5) for each in _question(5, 1)]
    assert _beside_s([late] * 3) == pytest.approx(TIMING.gateway_s, rel=0.01)


def test_too_few_say_nothing() -> None:
    scenes = [_question(1, seed, crowd_share=0.6, beside_s=0.0006) for seed in range(ENOUGH)]
    assert (_crowd(scenes[1:]), _beside_s(scenes[1:])) == (0.0, 0.0)
    assert _crowd(scenes) > 0.5
    assert _beside_s(scenes) > 0.0005


def _crowd(scenes: list[list[Seen]]) -> float:
    return fit_crowd([crowded(some, SHAPE.chunk_tokens) for some in scenes], TIMING, SHAPE)


def _beside_s(scenes: list[list[Seen]]) -> float:
    return fit_beside([in_company(some) for some in scenes], TIMING, SHAPE)


def _question(answers: int, seed: int, **company: float) -> list[Seen]:
    """Long answers by both replicas in turn, and a long prompt meanwhile, as the twin itself would have it."""
    given = [_seen(at, 0.005 * at, 0.0, tokens=160, lasts_s=1.0) for at in range(answers)]
    question = msgspec.structs.replace(_seen(answers, 0.060, 0.0), prompt_tokens=2_000)
    return _as_played([*given, question], msgspec.structs.replace(TIMING, **company), seed)


def _as_played(asked: list[Seen], timing: Timing, seed: int) -> list[Seen]:
    ttfts_s = played_s(asked, timing, SHAPE, seed)
    return [msgspec.structs.replace(one, first_s=one.sent_s + s) for one, s in zip(asked, ttfts_s, strict=True)]


def test_who_came_while_others_were_answered_is_seen() -> None:
    first, during, after = _seen(0, 0.0, 0.010, lasts_s=1.0), _seen(2, 0.5, 0.012), _seen(3, 2.0, 0.007)
    assert in_company([first, during, after]).about == [1]
    from_ram = msgspec.structs.replace(during, tier="ram")
    assert in_company([first, from_ram, after]).about == []


def test_whose_prompt_was_computed_beside_another_replica_is_seen() -> None:
    def scene(other: int, tokens: int) -> list[Seen]:
        return [
            _seen(0, 0.0, 0.010, lasts_s=1.0),
            msgspec.structs.replace(_seen(other, 0.5, 0.1), prompt_tokens=tokens),
        ]

    assert crowded(scene(other=1, tokens=600), 512).about == [1]
    assert crowded(scene(other=2, tokens=600), 512).about == []
    assert crowded(scene(other=1, tokens=512), 512).about == []


def test_a_request_that_never_had_a_token_is_in_no_scene() -> None:
    lost = msgspec.structs.replace(_seen(0, 0.0, 0.0), first_s=None, outcome="cut off")
    assert in_company([lost, _seen(1, 0.5, 0.010)]).seen == [_seen(1, 0.5, 0.010)]


def test_undisturbed_is_who_had_the_fleet_for_itself() -> None:
    long = _seen(0, 0.0, 0.010, lasts_s=1.0, tokens=100)
    beside, after = _seen(1, 0.5, 0.012), _seen(3, 2.0, 0.007)
    assert undisturbed_s([long, beside, after], TABLE, 512) == pytest.approx([0.007, 0.004])
