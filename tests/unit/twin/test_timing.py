"""How long steps take, as given and as measured."""

from __future__ import annotations

import pytest

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
