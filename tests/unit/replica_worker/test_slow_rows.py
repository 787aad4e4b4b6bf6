"""A replica whose steps take five times as long with all rows as with one keeps the objective of those it lets in."""

from __future__ import annotations

import msgspec
import pytest

from services.replica_worker.core.capacity import Capacity
from services.replica_worker.core.margin import Margin
from services.replica_worker.core.prompt_pace import PromptPace
from services.replica_worker.core.row_ends import Row, RowEnds
from services.replica_worker.core.row_pace import RowPace
from services.replica_worker.core.turn import Line, turn_of
from tests.support.slow_rows import Asked, SlowRows, poisson

CAPACITY_PER_S = 32 / (32 * (0.03 + 0.003 * 31 + 0.03))
"""32 rows, answers of 32 tokens, and a prompt in each step."""


def p95(found: list[Asked]) -> float:
    seen = sorted(each.ttft_s for each in found if each.ttft_s is not None)
    return seen[int(0.95 * len(seen))]


def goodput(found: list[Asked]) -> int:
    return sum(each.ttft_s is not None and each.ttft_s <= 1.0 for each in found)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("times", [1.7, 3.0])
def test_those_who_are_let_in_are_in_time_from_a_cold_start_on(times: float, uneven: bool) -> None:
    found = SlowRows().run(poisson(times * CAPACITY_PER_S, 40.0, uneven=uneven))
    assert any(each.ttft_s is None for each in found)
    assert p95(found) <= 1.0
    at_capacity = SlowRows().run(poisson(CAPACITY_PER_S, 40.0, uneven=uneven))
    assert goodput(found) >= 0.9 * goodput(at_capacity)


@pytest.mark.parametrize("times", [1.7, 3.0])
def test_without_a_decision_nearly_nobody_would_be(times: float) -> None:
    """What the test above is for: it would fail."""
    assert goodput(SlowRows(sheds=False).run(poisson(times * CAPACITY_PER_S, 40.0))) < 0.3 * CAPACITY_PER_S * 40.0


@pytest.mark.parametrize("times", [0.7, 0.9])
def test_below_its_capacity_nobody_is_refused_but_for_those_who_would_be_late(times: float) -> None:
    asked = times * CAPACITY_PER_S
    refused = sum(each.ttft_s is None for each in SlowRows().run(poisson(asked, 60.0)))
    waiting = SlowRows(sheds=False).run(poisson(asked, 60.0))
    assert refused <= len(waiting) - goodput(waiting)


def test_a_first_burst_into_a_cold_replica_is_let_in_as_far_as_it_is_in_time() -> None:
    burst = [Asked(f"r{at}", 0.01 * at, 32) for at in range(16)]
    assert goodput(SlowRows().run(burst)) >= 13
    flood = SlowRows().run(poisson(6 * CAPACITY_PER_S, 6.0))
    assert p95(flood) <= 1.3, "before anything was seen some are let in too late"


def test_a_fast_engine_is_not_throttled() -> None:
    """Steps of a hundredth of that: rows are free long before anybody is late."""
    fast = SlowRows(least_s=0.0003, row_s=0.00003, prompt_s=0.0003)
    assert all(each.ttft_s is not None for each in fast.run(poisson(80 * CAPACITY_PER_S, 10.0)))


def test_answers_that_began_together_leave_no_row_until_they_end_together() -> None:
    ends = RowEnds()
    for _ in range(64):
        ends.ended(32)
    young, old = [Row(4, 28)] * 32, [Row(30, 2)] * 32
    assert ends.free(1, young).late >= 27
    assert ends.free(1, old).late <= 2
    half = ends.free(1, [Row(16 * (at % 2) + 8, 200) for at in range(32)])
    assert 8 <= half.mean <= half.late <= 9


def test_answers_without_a_length_of_their_own_end_as_if_they_had_just_begun() -> None:
    """Mean gaps of a 32nd of the mean length; the first row is late in one case of twenty after three of those."""
    ends = RowEnds()
    for at in range(64):
        ends.ended(round(60 * (2.2 - at % 8 * 0.3)))
    found = ends.free(1, [Row(at * 3, 400) for at in range(32)])
    assert 1 <= found.mean <= 4
    assert found.mean < found.late <= 9


def test_before_any_answer_has_ended_the_tokens_so_far_say_how_rare_ends_are() -> None:
    """As many tokens again until one does, or until an answer may not become longer."""
    ends = RowEnds()
    assert ends.free(1, [Row(10, 500)] * 32).mean == pytest.approx(10, abs=1)
    assert ends.free(1, [Row(10, 3)] * 32).mean == 3


def test_of_many_rows_some_speak_for_all() -> None:
    ends = RowEnds()
    for at in range(64):
        ends.ended(40 + 5 * at)
    few = [Row(4 * at, 400) for at in range(64)]
    many = sorted(few * 4, key=lambda row: row.produced, reverse=True)
    assert ends.free(16, few).mean == pytest.approx(ends.free(64, many).mean, abs=1)
    assert ends.free(64, many).mean <= ends.free(64, many).late < ends.free(16, few).late, "more rows are less uneven"


def test_who_has_no_objective_is_judged_by_many_answers_alone() -> None:
    """Steps of a tenth of a second, and no answer has ended."""
    capacity = Capacity()
    for at in range(40):
        capacity.step({f"r{row}": 1 for row in range(32)}, frozenset(), 32, 0.1 * at)
    line = Line(before=0, free_rows=0, max_rows=32, prompts=0, handed=32, rows=[Row(39, 4000)] * 32)
    assert turn_of(line, 0.0, RowPace(), capacity, Margin()) is None
    hasty = turn_of(line, 1.0, RowPace(), capacity, Margin())
    assert hasty is not None
    assert hasty.mean_s == pytest.approx(3.9, rel=0.1)


@pytest.mark.parametrize("handed", [0, 1, 31])
@pytest.mark.parametrize("objective_s", [0.0, 1.0])
def test_many_before_it_take_the_free_rows_and_leave_none(handed: int, objective_s: float) -> None:
    """A burst of 200 comes before the first of it is in the engine: with answers of two seconds each row serves six."""
    capacity, pace = Capacity(), RowPace()
    for at in range(40):
        capacity.step({f"r{row}": 1 for row in range(32)}, frozenset(), 32, 0.05 * at)
        pace.ended(40)
    line = Line(
        before=200, free_rows=32 - handed, max_rows=32, prompts=0, handed=handed, rows=[Row(5, 60)] * handed
    )  # fmt: skip
    found = turn_of(line, objective_s, pace, capacity, Margin())
    assert found is not None
    assert found.mean_s == pytest.approx(2.0 * (169 + handed) / 32, rel=0.05)
    few = msgspec.structs.replace(line, before=31 - handed)
    assert turn_of(few, objective_s, pace, capacity, Margin()) is None, "a row is free for it"


@pytest.mark.parametrize("steps", [1, 8])
def test_what_a_prompt_takes_is_the_same_with_several_steps_handed_out_together(steps: int) -> None:
    """Steps of a tenth of a second, and two of several prompts in each eight of them."""
    capacity = Capacity()
    for at in range(0, 480, steps):
        done = frozenset({f"p{at}", f"q{at}"}) if at % 8 == 0 else frozenset()
        capacity.step({f"r{row}": steps for row in range(16)} | dict.fromkeys(done, 1), done, 20, 0.1 * (at + steps))
    found = capacity.prompt_wait(8, 16)
    assert found is not None
    assert found.prompt_s == pytest.approx(0.4, rel=0.1)


def test_a_line_of_prompts_takes_what_they_take_however_long_each_of_them_waited() -> None:
    """Two a step: the same with few rows and with many, in steps of then."""
    pace = PromptPace()
    for _ in range(10):
        pace = pace.after(2, 1.0)
    found = pace.wait(8, 0.15)
    assert found is not None
    assert (found.mean_s, found.prompt_s) == (pytest.approx(0.6), pytest.approx(0.075))
    assert PromptPace().after(4, 2.0).wait(8, 0.15) is None, "four prompts are no measure"


def test_the_margin_rises_with_late_first_tokens_and_a_pause_of_the_process_is_one_of_them() -> None:
    margin = Margin()
    least = margin.times
    for _ in range(9):
        margin.began(1.4, 1.0, now_s=10.0)
    once = margin.times
    assert least < once < 1.3 * least
    margin.began(1.4, 1.0, now_s=11.0)
    assert margin.times > once
    for at in range(60):
        margin.began(0.4, 1.0, now_s=12.0 + at)
    assert margin.times == least
    margin.began(60.0, 0.0, now_s=90.0)
    assert margin.times == least, "nobody wanted it sooner"
