"""What the routing report says of a run is what happened in it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loadtest import routing_judging as judging
from loadtest import routing_runs as runs
from loadtest.capacity.trial import Trial
from loadtest.report import Report, shortfalls
from loadtest.twin.outcome import Answered, Outcome, ReplicaSecond, Second

BRIEF = Trial(for_s=90.0, warm_up_s=10.0, seed=3)


def answered(tenant: int, at_s: float, ttft_s: float, tier: str = "gpu") -> Answered:
    return Answered(at_s, tenant, tenant, ttft_s, at_s + 9.0, "ok", tier, "replica-0", "resident", 250, 1)


def second(at_s: float, tokens: tuple[int, ...], loads: int, evictions: int) -> Second:
    replicas = (
        ReplicaSecond(f"replica-{n}", each, 30, 0, loads, evictions, 32, False) for n, each in enumerate(tokens)
    )
    return Second(at_s, tuple(replicas), 0, {})


def outcome(*requests: Answered, owners: tuple[tuple[float, str, int], ...] = ()) -> Outcome:
    return Outcome(
        requests=requests,
        seconds=(second(30.0, (100, 100), 10, 0), second(60.0, (140, 60), 20, 4), second(90.0, (120, 80), 40, 6)),
        owners=owners,
        broken=(),
        for_s=100.0,
        warm_up_s=30.0,
        simulated_s=150.0,
        wall_s=0.5,
        events=1,
        usd_per_replica_hour=2.5,
        objective_s=1.0,
    )


def test_a_run_is_told_by_tier_and_by_minute() -> None:
    found = judging.run_of("affinity", 50, outcome(answered(1, 40, 0.1), answered(1, 41, 0.3, "ram"),
                                                   answered(2, 42, 0.2), answered(3, 43, 0.6, "remote")))  # fmt: skip
    assert found.tiers == (0.5, 0.25, 0.0, 0.25)
    assert found.loads_per_min == 60 / (6 / 60)  # 30 on each of two replicas, in six seconds of one
    assert found.evictions_per_min == 12 / (6 / 60)
    assert found.loads_per_1000 == 1000 * 60 / 4
    assert found.cdf == ((0.1, 0.25), (0.2, 0.5), (0.3, 0.75), (0.6, 1.0))


def test_a_curve_of_many_requests_keeps_its_ends_and_rises() -> None:
    curve = judging.cdf([number / 1000 for number in range(10_000)])
    assert len(curve) <= 201
    assert curve[-1] == (9.999, 1.0)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(curve))


def test_fleet_figures_have_their_targets() -> None:
    good = judging.fleet_figures(outcome(*[answered(1, 40, 0.1)] * 20))
    report = Report(name="routing", commit="", date="", machine="", figures=good)
    assert shortfalls([report]) == ["routing  fleet_a.max_over_mean  1.4, target <= 1.25",
                                    "routing  fleet_a.max_over_mean_steady  1.2, target <= 1.15"]  # fmt: skip
    assert good["twin.speed_x"].value == 300
    assert good["fleet_a.usd_per_million_tokens"].value == pytest.approx(2.5 * 6 / 3600 / (20 * 250) * 1e6, rel=1e-3)


def test_chance_is_compared_with_bounded_affinity() -> None:
    runs_ = [
        judging.run_of(strategy, 5, outcome(*[answered(1, 40, ttft_s)] * 20))
        for strategy, ttft_s in (("random", 0.9), ("affinity_bounded", 0.3))
    ]
    figures = judging.comparison(runs_)
    assert figures["affinity_vs_random.ttft_p95_5"].value == 3.0
    assert figures["affinity_vs_random.loads_per_1000_5"].value == 1.0
    assert figures["random.5.gpu_hit"].value == 1.0


def test_a_rising_customer_is_judged_by_owners_and_by_when_it_is_well_again() -> None:
    late = [answered(40, 60 + at_s, 1.5 if at_s < 12 else 0.2) for at_s in range(60)]
    others = [answered(1, 60 + at_s, 9.0) for at_s in range(60)]
    grown = (
        (64.0, "adapter-000040", 3),
        (69.0, "adapter-000040", 4),
        (69.5, "adapter-000041", 9),
        (80.0, "adapter-000040", 5),
    )
    run = outcome(*late, *others, owners=grown)
    figures = judging.rise_figures(run, 40, 60.0)
    assert figures["hot_customer.owners_after_10_s"].value == 4
    assert figures["hot_customer.owners_after_60_s"].value == 5
    assert figures["hot_customer.recovery_s"].value == 15.0
    assert judging.owners_at(run, 40, 63.0) == 2
    assert judging.recovery_s(outcome(answered(40, 61, 0.2)), 40, 60.0) == 0.0


def test_one_of_26_replicas_takes_its_share_of_placements_along() -> None:
    assert 1 / 26 * 0.9 < judging.moved_share(2_000, 26) <= 1.3 / 26


def test_strategies_get_the_same_calls_and_the_rise_is_within_the_peak() -> None:
    random, affinity = (list(runs.compared(1_000, name, BRIEF).calls()) for name in ("random", "affinity"))
    assert random == affinity
    rising = [call for call in runs.rising(BRIEF).calls() if call.at_s >= runs.HOT_AT_S]
    assert len(rising) / 30 == pytest.approx(40, rel=0.15)
    assert sum(call.tenant == runs.HOT_TENANT for call in rising) / 30 * 250 == pytest.approx(2_000, rel=0.25)
