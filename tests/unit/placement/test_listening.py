"""A common silence is our own deafness until proven otherwise."""

from __future__ import annotations

import pytest

from services.placement.core.listening import Listening, policy_for

POLICY = policy_for(lost_after_s=5.0, lost_grace_s=30.0)


@pytest.mark.parametrize(
    ("now_s", "judged_s"), [(0.0, 0.0), (2.0, 2.0), (3.0, 3.0), (4.0, 3.0), (30.0, 3.0), (30.1, 5.001)]
)
def test_time_stands_still_in_a_common_silence_and_then_declares_all_lost(now_s: float, judged_s: float) -> None:
    assert Listening(last_s=0.0).time_s(now_s, POLICY) == judged_s


def test_time_goes_on_where_it_stood_when_somebody_speaks_again() -> None:
    after = Listening(last_s=0.0).heard(600.0, POLICY)
    assert after.time_s(600.0, POLICY) == 3.0
    assert after.time_s(601.5, POLICY) == 4.5
    assert after.real_s(601.5) == 4.5


def test_while_reports_keep_coming_it_is_the_time_of_the_clock() -> None:
    listening = Listening(last_s=0.0)
    for second in range(1, 100):
        listening = listening.heard(float(second), POLICY)
        assert listening.time_s(float(second), POLICY) == float(second)


@pytest.mark.parametrize("lost_after_s", [0.6, 1.0, 5.0, 20.0])
def test_those_heard_last_are_never_lost_by_our_patience_alone(lost_after_s: float) -> None:
    policy = policy_for(lost_after_s, 30.0)
    assert 0.0 < policy.patience_s < lost_after_s < policy.all_lost_s
