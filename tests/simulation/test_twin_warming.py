"""A new replica joins, warms, and gets traffic then: placement, the worker's report and routing together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from loadtest.twin.outcome import Answered
from loadtest.twin.scenario import PROLOGUE_S, Fault, PoolShape
from loadtest.twin.twin import Twin
from loadtest.workloads.shape import Fixed, Lengths
from services.gateway.core.routing import RoutingPolicy
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.reports import ReplicaReport
from tests.simulation.twin_fleets import scenario, traffic

NEW = "replica-02"
BRIEF = Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=20))
JOINS = Fault(kind="join", at_s=15.0, number=2)


def _run(
    *faults: Fault, replicas: int = 2, for_s: float = 60.0, **changes: Any
) -> tuple[list[Answered], dict[float, ReplicaReport]]:
    """The requests, and what the new replica reported when; times since the workload began."""
    shape = traffic(customers=40, rate_per_s=6.0, for_s=for_s, lengths=BRIEF)
    pool = PoolShape(replicas=replicas, slots=30)
    twin = Twin(scenario(shape, pool, faults=faults, check_every=50, **changes))
    said: dict[float, ReplicaReport] = {}

    def heard(report: ReplicaReport) -> None:
        if report.replica_id == NEW:
            said[twin.agenda.now_s - PROLOGUE_S] = report

    twin.wire.read(REPLICA_REPORT, heard)
    outcome = twin.run()
    assert outcome.broken == ()
    return list(outcome.requests), said


def _warm_at_s(said: dict[float, ReplicaReport]) -> float:
    return next(at_s for at_s, report in said.items() if not report.warming)


def test_a_new_replica_gets_traffic_once_its_adapters_are_there() -> None:
    requests, said = _run(JOINS)
    assert {each.outcome for each in requests} == {"ok"}
    first_s = min(each.arrived_s for each in requests if each.replica == NEW)
    assert min(said) + 2.0 < _warm_at_s(said) <= first_s < _warm_at_s(said) + 2.0
    to_come = [report.to_warm for report in said.values() if report.to_warm]
    assert len(to_come) > 2
    assert all(before >= after for before, after in pairwise(to_come)), to_come
    own = [each for each in requests if each.replica == NEW]
    assert sum(each.tier == "gpu" for each in own) > 0.9 * len(own)


def test_a_replica_that_never_becomes_warm_gets_traffic_after_the_deadline() -> None:
    slow = Fault(kind="slow_store", at_s=15.05, for_s=45.0, factor=400.0)
    _, said = _run(JOINS, slow, routing=RoutingPolicy(strategy="least_loaded"))
    assert 30.0 <= _warm_at_s(said) - min(said) < 32.0
    assert {report.to_warm for report in said.values() if report.warming} - {0}, "it waited for adapters"
    asked_s = next(at_s for at_s, report in said.items() if report.running + report.queue_depth)
    assert _warm_at_s(said) <= asked_s <= _warm_at_s(said) + 2.0


def test_a_lone_replica_that_comes_back_takes_requests_at_once() -> None:
    requests, _ = _run(Fault(kind="death", at_s=15.0, for_s=5.0), replicas=1, for_s=30.0)
    back = [each for each in requests if 21.5 < each.arrived_s < 23.0]
    assert {(each.outcome, each.rule) for each in back} == {("ok", "warming")}


def test_one_that_comes_back_beside_another_warms_first() -> None:
    requests, _ = _run(Fault(kind="death", at_s=15.0, for_s=5.0), for_s=30.0)
    assert {each.outcome for each in requests} == {"ok"}
    back = [each for each in requests if 20.0 < each.arrived_s < 22.0]
    assert {each.replica for each in back} == {"replica-01"}
