"""How much later a first token comes whose adapter was in RAM."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.climbing import ENOUGH, climb_s
from loadtest.calibration.seen import Seen

RESIDENT_S, CLIMB_S = 0.006, 0.003


def _seen(ttft_s: float, tier: str, prompt_tokens: int = 40) -> Seen:
    return Seen(
        request_id="r", adapter=0, planned_s=1.0, sent_s=1.0, first_s=1.0 + ttft_s, ended_s=2.0, outcome="ok",
        tier=tier, prompt_tokens=prompt_tokens,
    )  # fmt: skip


CLIMBED = [_seen(RESIDENT_S + CLIMB_S, "ram")] * ENOUGH
RESIDENT = [_seen(RESIDENT_S, "gpu")] * ENOUGH


def test_it_is_the_difference_to_requests_alike() -> None:
    longer = [_seen(0.050, "gpu", prompt_tokens=800)] * 50
    assert climb_s(CLIMBED, RESIDENT + longer) == pytest.approx(CLIMB_S)


def test_who_found_a_slot_after_all_has_not_climbed() -> None:
    assert climb_s([*CLIMBED, *[_seen(RESIDENT_S, "gpu")] * 50], RESIDENT) == pytest.approx(CLIMB_S)


def test_one_that_the_machine_disturbed_changes_nothing() -> None:
    assert climb_s([*CLIMBED, _seen(0.5, "ram")], [*RESIDENT, _seen(0.5, "gpu")]) == pytest.approx(CLIMB_S)


def test_nobody_is_ahead_of_his_time_by_it() -> None:
    assert climb_s([msgspec.structs.replace(each, first_s=1.001) for each in CLIMBED], RESIDENT) == 0.0


def test_too_few_say_nothing() -> None:
    assert climb_s(CLIMBED[1:], RESIDENT) is None
    assert climb_s(CLIMBED, RESIDENT[1:]) is None
