"""A day of the autoscaler is judged by requests, replica hours and changes of direction."""

from __future__ import annotations

import pytest

from loadtest import autoscaling_judging as judging
from loadtest.autoscaling_report import KINDS, POLICY, requests_per_replica, scaled, shape
from loadtest.twin.outcome import Answered, Outcome, ReplicaSecond, Second
from loadtest.workloads.calls import calls


def answered(at_s: float, ttft_s: float) -> Answered:
    return Answered(at_s, 1, 1, ttft_s, at_s + 9.0, "ok", "gpu", "replica-0", "resident", 250, 1)


def second(at_s: float, replicas: int, wish: int, starting: int = 0) -> Second:
    body = tuple(ReplicaSecond(f"replica-{number}", 0, 0, 0, 0, 0, 32, False) for number in range(replicas))
    return Second(at_s, body, starting, {"pool": wish} if wish else {})


def outcome(requests: list[Answered], seconds: list[Second]) -> Outcome:
    return Outcome(
        requests=tuple(requests),
        seconds=tuple(seconds),
        owners=(),
        broken=(),
        for_s=120.0,
        warm_up_s=0.0,
        simulated_s=130.0,
        wall_s=1.0,
        events=1,
        usd_per_replica_hour=2.5,
        objective_s=1.0,
    )


CALM = [answered(number / 2, 0.2) for number in range(120)]
BUSY = [answered(60 + number / 4, 0.2 if number < 216 else 1.5) for number in range(240)]
TWO_MINUTES = outcome(
    CALM + BUSY,
    [second(float(at), 2, 2) if at < 60 else second(float(at), 3, 4, starting=1) for at in range(120)],
)


def test_minutes_are_told_one_by_one() -> None:
    day = judging.day_of(TWO_MINUTES, 1.0)
    assert day.requests_per_s == (2.0, 4.0)
    assert day.replicas == (2.0, 4.0)  # what starts is paid for
    assert day.oracle == (2.0, 4.0)
    assert day.late_share == (0.0, 0.1)


def test_a_minute_in_which_nobody_calls_takes_one_replica() -> None:
    day = judging.day_of(outcome([answered(0, 0.1)], [second(0.0, 2, 2), second(60.0, 2, 2)]), 1.0)
    assert day.oracle == (1.0, 1.0)
    assert day.late_share == (0.0, 0.0)


def test_figures_and_their_targets() -> None:
    found = judging.figures(TWO_MINUTES, judging.day_of(TWO_MINUTES, 1.0))
    assert found["autoscaler.in_objective"].value == pytest.approx(1 - 24 / 360, abs=1e-4)
    assert found["autoscaler.in_objective"].met is False
    assert found["autoscaler.gpu_hours_over_oracle"].value == 1.0
    assert found["autoscaler.gpu_hours"].value == 0.1
    assert found["autoscaler.always_peak_gpu_hours"].value == pytest.approx(0.1333)
    assert found["autoscaler.reversals"].value == 0


def test_a_reversal_is_a_change_of_direction_and_not_of_size() -> None:
    wishes = [0, 2, 3, 4, 4, 3, 3, 2, 5]
    found = judging.reversals([second(float(at), 2, wish) for at, wish in enumerate(wishes)])
    assert found == [5.0, 8.0]


def test_a_replica_carries_a_request_by_its_tokens_and_its_prompt() -> None:
    """250 tokens at 640/s and a prompt of 750 at 8,000/s, at the utilisation that is aimed at."""
    assert requests_per_replica() == pytest.approx(POLICY.need.utilisation / (250 / 640 + 750 / 8_000))


def test_the_day_begins_and_ends_with_its_night() -> None:
    traffic = shape(1.0, 7)
    times = [call.at_s for call in calls(traffic)]
    night = sum(at_s < 300 or at_s >= 3300 for at_s in times) / 600
    noon = sum(1650 <= at_s < 1950 for at_s in times) / 300
    assert noon > 2 * night
    assert scaled(traffic).scaling is not None
    assert shape(6.0, 7).surges == shape(6.0, 7).surges != shape(6.0, 8).surges


def test_a_restless_day_has_other_surges_than_any_day() -> None:
    usual, restless = (shape(12.0, 7, kind).surges for kind in (KINDS["day"], KINDS["restless"]))
    assert len(restless) > len(usual)
    assert max(surge.factor for surge in usual) <= 1.8 < max(surge.factor for surge in restless)
