"""How long steps take, as given and as measured."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest

from loadtest.twin.agenda import Agenda
from loadtest.twin.batch import Batch
from loadtest.twin.sequence import BatchShape, Sequence
from loadtest.twin.timing import MeasuredTable, StepTable


def test_fleet_a_takes_fifty_milliseconds_and_what_its_prompts_cost() -> None:
    steps = StepTable()
    assert steps.step_s(32, 0, 32) == pytest.approx(0.050)
    assert steps.step_s(1, 512, 1) == pytest.approx(0.050 + 0.064)


def test_a_measured_table_is_linear_between_its_points_and_beyond_the_last() -> None:
    table = MeasuredTable(rows=(1, 8, 32), prefill_tokens=(0, 512), mean_s=((0.01, 0.03), (0.02, 0.05), (0.05, 0.09)))
    assert table.step_s(8, 0, 8) == pytest.approx(0.02)
    assert table.step_s(20, 0, 20) == pytest.approx(0.035)
    assert table.step_s(8, 256, 8) == pytest.approx(0.035)
    assert table.step_s(8, 1024, 8) == pytest.approx(0.08)
    assert table.step_s(44, 0, 44) == pytest.approx(0.065)


@pytest.mark.parametrize(
    ("rows", "prefill_tokens", "mean_s"),
    [
        ((1,), (0, 1), ((0.1, 0.2),)),
        ((2, 1), (0, 1), ((0.1, 0.2), (0.1, 0.2))),
        ((1, 2), (0, 1), ((0.1, 0.2),)),
        ((1, 2), (0, 1), ((0.1,), (0.1,))),
    ],
)
def test_a_ragged_table_is_refused(
    rows: tuple[int, ...], prefill_tokens: tuple[int, ...], mean_s: tuple[tuple[float, ...], ...]
) -> None:
    with pytest.raises(ValueError, match="timing table"):
        MeasuredTable(rows=rows, prefill_tokens=prefill_tokens, mean_s=mean_s)


def test_steps_are_slow_together_so_that_whole_answers_scatter_as_steps_do() -> None:
    agenda = Agenda()
    took_s: list[float] = []
    began_s = [2.0 * at for at in range(400)]
    batch = Batch(
        BatchShape(), StepTable(base_s=0.010, prefill_tokens_per_s=1e9, spread=0.2), agenda,
        lambda _, ended: took_s.extend(agenda.now_s % 2.0 for _ in ended), random.Random(1),
    )  # fmt: skip
    for at_s in began_s:
        agenda.at(at_s, batch.submit, Sequence(None, 1, 20))
    agenda.run(2.0 * len(began_s))
    assert fmean(took_s) == pytest.approx(20 * 0.010, rel=0.03)
    assert stdev(took_s) == pytest.approx(0.2 * 20 * 0.010, rel=0.1)


def test_of_a_long_answer_slow_and_fast_steps_make_up_for_each_other() -> None:
    agenda = Agenda()
    ended_s: list[float] = []
    batch = Batch(
        BatchShape(), StepTable(base_s=0.010, prefill_tokens_per_s=1e9, spread=0.2), agenda,
        lambda _, ended: ended_s.extend(agenda.now_s for _ in ended), random.Random(1),
    )  # fmt: skip
    agenda.at(0.0, batch.submit, Sequence(None, 1, 9_000))
    agenda.run(1_000.0)
    assert ended_s == [pytest.approx(9_000 * 0.010, rel=0.04)]
