"""A free row is no promise of a first token where prompts are computed one after another."""

from __future__ import annotations

import random

import msgspec
import pytest

from services.replica_worker.core.admission import admit
from services.replica_worker.core.prompt_line import PromptLine
from services.replica_worker.core.row_pace import Forecast, RowPace
from tests.unit.replica_worker.test_shedding import DOOR, REQUEST

ROW = Forecast(mean_s=2.0, late_s=4.0, first_token_s=0.1, row_s=0.1)


def paced(prompt_s: float, longest: int = 8, *, spread: float = 0.0) -> RowPace:
    """First tokens behind none to `longest` prompts, each of which takes `prompt_s`."""
    draw, pace = random.Random(1), RowPace()
    for at in range(60):
        ahead = at % (longest + 1)
        pace.began(sum(prompt_s * draw.uniform(1 - spread, 1 + spread) for _ in range(ahead + 1)), ahead)
    return pace


def test_a_replica_with_free_rows_refuses_who_would_wait_too_long_for_its_prompt() -> None:
    found = paced(0.3).foresee(None, 12)
    assert found is not None
    assert (found.mean_s, found.first_token_s) == (pytest.approx(3.6, rel=0.1), pytest.approx(0.3, rel=0.4))
    refusal = admit(REQUEST, msgspec.structs.replace(DOOR, forecast=found))
    assert refusal is not None
    assert refusal.code == "overloaded"
    assert refusal.reason.startswith(
        "Other prompts are computed first: the turn of this request would come in about 3."
    )
    assert refusal.retry_after_s == pytest.approx(3.6, rel=0.1)
    in_time = msgspec.structs.replace(DOOR, forecast=paced(0.05).foresee(None, 8))
    assert admit(REQUEST, in_time) is None


def test_whichever_is_awaited_longer_is_what_counts() -> None:
    assert paced(0.05).foresee(ROW, 8) is ROW
    longer = paced(0.3).foresee(ROW, 20)
    assert longer is not None
    assert longer.awaits == "prompts"


def test_one_prompt_before_it_is_nobodys_overload() -> None:
    """However long prompts are: or two requests at once would be refused by an idle fleet."""
    assert paced(30.0).foresee(None, 1) is None
    assert paced(30.0).foresee(None, 2) is not None


@pytest.mark.parametrize("pace", [RowPace(), paced(0.3, longest=0)])
def test_prompts_that_never_waited_say_nothing_of_a_line(pace: RowPace) -> None:
    """A burst after single requests is let in: an engine may compute many prompts at once."""
    assert pace.foresee(None, 32) is None
    assert pace.foresee(ROW, 32) is ROW


def test_who_waited_for_a_row_in_the_engine_is_no_measure_of_prompts() -> None:
    pace = RowPace()
    for _ in range(40):
        pace.began(9.0)
    assert pace.foresee(None, 32) is None


def test_a_pause_of_the_process_is_no_measure_of_prompts_and_a_slower_engine_is_believed() -> None:
    """Single requests, and three at once that stand still for twenty seconds: the next three are let in."""
    pace = RowPace()
    for _ in range(40):
        pace.began(0.1, 0)
    for ahead in range(3):
        pace.began(20.0, ahead)
    assert admit(REQUEST, msgspec.structs.replace(DOOR, forecast=pace.foresee(None, 2))) is None
    for at in range(40):
        pace.began(5.0 * (at % 4 + 1), at % 4)
    slower = pace.foresee(None, 2)
    assert slower is not None
    assert slower.mean_s == pytest.approx(10.0, rel=0.3)


def test_a_late_one_is_later_than_the_mean_and_no_later_than_twice() -> None:
    line = PromptLine()
    draw = random.Random(2)
    for at in range(90):
        line = line.after(at % 6, sum(draw.uniform(0.1, 0.5) for _ in range(at % 6 + 1)))
    for ahead in (2, 5, 9):
        found = line.wait(ahead)
        assert found is not None
        assert found.mean_s < found.late_s <= 2 * found.mean_s
