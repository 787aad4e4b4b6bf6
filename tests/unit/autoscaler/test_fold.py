"""Reports become loads, and silence neither blocks nor fools anybody."""

from __future__ import annotations

import pytest

from services.autoscaler.core.demand import DemandPolicy, heard, of_pool
from services.autoscaler.core.fold import Facts, HeardReplica, loads, newer, queued_tokens, silent_replicas
from services.autoscaler.core.load import ReplicaLoad
from services.autoscaler.core.policy import SilencePolicy
from shared.messages.activity import PoolActivity
from shared.messages.desired import PoolPressure
from tests.simulation.speakers import POOL, report

WINDOWS = DemandPolicy()


def told(*reports: HeardReplica) -> dict[str, HeardReplica]:
    return {one.report.replica_id: one for one in reports}


def test_a_report_becomes_the_load_of_a_replica() -> None:
    said = report(
        "r1", running=4, queue_depth=4, tokens_in_flight=800, queued_tokens=300, tokens_per_s=100.0,
        capacity_tokens_per_s=640.0, slots_busy=3, evictions_per_min=2.0, weight=0.5,
        kv_used_tokens=320, kv_total_tokens=640, warming=True,
    )  # fmt: skip
    load = loads(Facts(replicas=told(HeardReplica(report=said, at_s=7.0))), 8.0, WINDOWS)[POOL]
    assert load.replicas == {
        "r1": ReplicaLoad(
            replica_id="r1", heard_at_s=7.0, running=4, queue_depth=4, tokens_in_flight=800, queued_tokens=300,
            tokens_per_s=100.0, capacity_tokens_per_s=640.0, evictions_per_min=2.0, slots=4, slots_busy=3, max_rows=32,
            weight=0.5, kv_used_tokens=320, kv_total_tokens=640, warming=True,
        )
    }  # fmt: skip


def test_the_membership_knows_the_weight_better_and_a_person_may_hold_a_replica() -> None:
    facts = Facts(
        replicas=told(HeardReplica(report=report("r1"), at_s=0.0)), weights={"r1": 2.0}, held=frozenset({"r1"})
    )
    load = loads(facts, 0.0, WINDOWS)[POOL]
    assert (load.replicas["r1"].weight, load.held) == (2.0, {"r1"})


def test_demand_and_pressure_are_those_of_the_pool() -> None:
    said = PoolActivity(requests=40, refused=4, first_tokens=36, late_first_tokens=9, tokens=9_000)
    facts = Facts(
        replicas=told(HeardReplica(report=report("r1"), at_s=0.0)),
        pressures={POOL: PoolPressure(pool_id=POOL, replicas=5, reason="too many adapters")},
        tallies={POOL: heard(None, of_pool(said), 1.0, 0.0, WINDOWS)},
    )
    load = loads(facts, 0.0, WINDOWS)[POOL]
    assert (load.pressure_replicas, load.pressure_reason) == (5, "too many adapters")
    assert load.demand.requests_per_s == pytest.approx(40.0, rel=0.1)
    assert (load.demand.tokens_per_request, load.demand.late_share) == (250.0, pytest.approx(13 / 40))


@pytest.mark.parametrize(("age_s", "silent"), [(3.0, ()), (3.1, ("r1",)), (30.0, ("r1",)), (30.1, ())])
def test_silence_has_a_beginning_and_an_end(age_s: float, silent: tuple[str, ...]) -> None:
    replicas = told(HeardReplica(report=report("r1"), at_s=0.0))
    assert silent_replicas(replicas, age_s, SilencePolicy()) == silent


def test_a_repeated_report_is_no_sign_of_life_and_a_new_incarnation_is() -> None:
    before = newer(None, report("r1", 5), 0.0)
    assert newer(before, report("r1", 5), 4.0) is before
    assert newer(before, report("r1", 1, incarnation="second"), 4.0).at_s == 4.0


def test_pools_are_apart() -> None:
    replicas = told(*(HeardReplica(report=report(name, pool_id=name), at_s=0.0) for name in ("p1", "p2")))
    assert {pool: len(load.replicas) for pool, load in loads(Facts(replicas=replicas), 0.0, WINDOWS).items()} == {
        "p1": 1,
        "p2": 1,
    }


def test_what_waits_is_said_or_the_share_of_those_who_wait() -> None:
    assert queued_tokens(report("r1")) == 0
    assert queued_tokens(report("r1", running=1, queue_depth=3, tokens_in_flight=400)) == 300
    assert queued_tokens(report("r1", running=1, queue_depth=3, tokens_in_flight=400, queued_tokens=50)) == 50
