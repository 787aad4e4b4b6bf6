"""A plan tried in the twin: the fleet that is simulated is the plan's, and the verdict is that of its requests."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.capacity import judging, simulation
from loadtest.capacity.model import NotPlannable
from loadtest.capacity.plan import plan
from loadtest.capacity.presets import preset
from loadtest.capacity.scenario import scenario, timing
from loadtest.capacity.search import Found
from loadtest.capacity.trial import Trial, asked_of, trial
from loadtest.plots.planning import PlanPoint
from loadtest.twin.outcome import Answered, Outcome, ReplicaSecond, Second
from loadtest.workloads.shape import RecordedLengths

FLEET_A = plan(preset("fleet-a"))
SMALL = plan(
    msgspec.structs.replace(
        preset("fleet-a"), adapters=40, rate_per_s=6.0, prompt_tokens=100.0, output_tokens=50.0, rows=8, slot_cap=12
    )
)


def answered(tenant: int, ttft_s: float | None, tier: str = "gpu", at_s: float = 50.0, outcome: str = "ok") -> Answered:
    return Answered(at_s, tenant, tenant, ttft_s, at_s + 9.0, outcome, tier, "replica-0", "resident", 10, 1)


def second(at_s: float, tokens: tuple[int, ...], loads: int) -> Second:
    replicas = tuple(
        ReplicaSecond(f"replica-{number}", each, 30, 0, loads, 0, 32, False) for number, each in enumerate(tokens)
    )
    return Second(at_s, replicas, 0, {})


def outcome(*requests: Answered) -> Outcome:
    return Outcome(
        requests=requests,
        seconds=(second(10.0, (9, 1), 50), second(40.0, (300, 100), 60), second(90.0, (200, 200), 80)),
        owners=(),
        broken=(),
        for_s=100.0,
        warm_up_s=30.0,
        simulated_s=110.0,
        wall_s=1.0,
        events=1,
        usd_per_replica_hour=2.5,
        objective_s=1.0,
    )


def test_the_simulated_fleet_is_the_plans() -> None:
    made = scenario(FLEET_A, 22, Trial(seed=7))
    [pool] = made.pools
    assert (pool.replicas, pool.slots, pool.adapter_bytes) == (22, 250, 79_953_920)
    assert pool.ram_bytes > 5000 * 2 / 22 * pool.adapter_bytes
    assert (pool.batch.max_rows, pool.batch.chunk_tokens) == (32, 1024)
    assert pool.batch.kv_tokens == 64_000
    assert made.timing.steps.step_s(32, 8_000, 32) == pytest.approx(1.05)
    assert made.usd_per_replica_hour == 2.5
    first = next(iter(made.calls()))
    assert (first.prompt_tokens, first.output_tokens) == (750, 250)


def test_a_measured_rate_has_the_prompts_in_it() -> None:
    steps = timing(plan(preset("fleet-b"))).steps
    assert 128 / steps.step_s(128, 10_000, 59) == pytest.approx(5000, rel=1e-6)


def test_requests_of_the_warm_up_do_not_count() -> None:
    found = judging.point(outcome(answered(1, 9.0, at_s=29.9), answered(1, 0.2)), 2)
    assert found.ttft_p95_s == 0.2
    assert found.misses == ""


def test_hits_loads_and_balance() -> None:
    found = judging.point(
        outcome(answered(1, 0.1), answered(1, 0.2, "ram"), answered(2, 0.5, "remote"), answered(2, 0.1)), 2
    )  # fmt: skip
    assert (found.gpu_hit, found.gpu_or_ram_hit) == (0.5, 0.75)
    assert found.loads_per_1000 == 1000 * (160 - 120) / 4
    assert found.max_over_mean == pytest.approx((1.5 + 1.0) / 2)  # of the seconds in which rows were busy
    assert found.usd_per_hour == 5.0


def test_one_customer_that_waits_is_enough_to_miss() -> None:
    fast = [answered(1, 0.1) for _ in range(980)]
    slow = [answered(2, 1.5) for _ in range(20)]
    found = judging.point(outcome(*fast, *slow), 2)
    assert found.ttft_p95_s == 0.1
    assert found.worst_customer_p95_s == 1.5
    assert found.misses == "a customer's own p95 is 1.50 s"


def test_customers_with_few_requests_are_judged_together() -> None:
    rare = [answered(tenant, 1.5 if tenant < 10 else 0.1) for tenant in range(100)]
    found = judging.point(outcome(*[answered(500, 0.1) for _ in range(1900)], *rare), 2)
    assert found.misses == "the p95 of all customers with few requests is 1.50 s"


def test_a_request_that_fails_is_enough_to_miss() -> None:
    found = judging.point(outcome(*[answered(1, 0.1)] * 99, answered(1, None, outcome="overloaded")), 2)
    assert found.misses == "1.00% of requests failed"


def test_a_fleet_that_answers_nobody_has_endless_waits() -> None:
    found = judging.point(outcome(answered(1, None, outcome="overloaded")), 2)
    assert found.ttft_p95_s == found.worst_customer_p95_s == float("inf")
    assert found.misses == "100.00% of requests failed"


def test_a_small_fleet_in_the_twin_has_a_smallest_size(tmp_path: Path) -> None:
    told: list[PlanPoint] = []
    tried = Trial(for_s=20.0, warm_up_s=4.0)
    found = simulation.simulate(SMALL, simulation.in_twin(SMALL, tried), told.append)
    assert sorted(point.replicas for point in told) == [point.replicas for point in found.points]
    assert found.points[0].replicas == 2  # what is busy all the time
    assert found.points[0].misses
    again = simulation.simulate(SMALL, simulation.in_twin(SMALL, tried), told.append)
    assert again == found
    picture, page = simulation.draw(SMALL, tried, found, tmp_path)
    assert picture.name == "plan.png"
    assert simulation.verdict(SMALL, found) in page.read_text()


def test_what_is_said_of_a_size_and_of_all() -> None:
    good = judging.point(outcome(answered(1, 0.1)), 22)
    found = Found(points=(good,), smallest=22, why_not_fewer="21 replicas do not: too slow")
    assert simulation.row(good).endswith("meets the objective")
    assert simulation.verdict(FLEET_A, found) == (
        "22 replicas meet the objective, for 55 USD/h; 21 replicas do not: too slow. With headroom the plan has 26."
    )
    nobody = Found(points=(good,), smallest=None, why_not_fewer="52 replicas do not: too slow")
    assert simulation.verdict(FLEET_A, nobody) == (
        "No fleet that was tried meets the objective: 52 replicas do not: too slow."
    )


def test_lengths_of_a_trace_are_planned_with(tmp_path: Path) -> None:
    recorded = Trial(lengths=RecordedLengths(pairs=((100, 10), (300, 30))))
    assert asked_of(FLEET_A.question, recorded).prompt_tokens == 200
    assert asked_of(FLEET_A.question, recorded).output_tokens == 20
    assert scenario(FLEET_A, 2, recorded).calls is not None
    with pytest.raises(NotPlannable, match="cannot be read"):
        trial(5.0, 1, tmp_path / "nowhere.csv")
    with pytest.raises(NotPlannable, match="0 minutes cannot be simulated"):
        trial(0.0, 1, None)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    found = Found(points=(judging.point(outcome(answered(1, 0.1)), 22),), smallest=22, why_not_fewer="x")
    with pytest.raises(NotPlannable, match="The plot cannot be written to"):
        simulation.draw(FLEET_A, Trial(), found, tmp_path / "taken")
