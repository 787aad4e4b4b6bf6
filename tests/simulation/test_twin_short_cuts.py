"""Where the twin does not ask a core, because the answer is known without it, asking changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from loadtest.twin.outcome import Outcome
from loadtest.twin.replica import Replica
from loadtest.twin.scenario import PoolShape
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import Timing
from loadtest.twin.twin import Twin
from loadtest.workloads.shape import Fixed, Lengths, TrafficShape
from services.replica_worker.core.converge import Step
from tests.simulation.twin_fleets import CRAMPED, scenario, traffic

BUSY = PoolShape(replicas=2, slots=30, batch=BatchShape(max_rows=4))
"""Every adapter has a slot, and there are too few rows."""
ROOMY = PoolShape(replicas=3, slots=24)
"""There are bytes for all that is assigned, and slots for some of it."""
LONG = Lengths(prompt=Fixed(tokens=200), output=Fixed(tokens=40))


def _outcome(shape: TrafficShape, pool: PoolShape, slow: Callable[[Replica], None] | None) -> tuple[Outcome, Twin]:
    twin = Twin(scenario(shape, pool))

    def make_slow() -> None:
        for replica in twin.fleet:
            if slow is not None:
                slow(replica)

    twin.agenda.at(0.0, make_slow)
    return twin.run(), twin


def _ask_for_every_decision(replica: Replica) -> None:
    replica.dispatcher.fast = False


def _plan_after_every_change(replica: Replica) -> None:
    replica.convergence.fast = False


@pytest.mark.parametrize("pool", [CRAMPED, BUSY], ids=["too few slots", "too few rows"])
@pytest.mark.parametrize("seed", range(2))
def test_requests_start_as_if_every_decision_were_asked_for(pool: PoolShape, seed: int) -> None:
    shape = traffic(for_s=20.0, seed=seed) if pool is CRAMPED else traffic(for_s=20.0, seed=seed, lengths=LONG)
    short, quick = _outcome(shape, pool, None)
    whole, slow = _outcome(shape, pool, _ask_for_every_decision)
    assert short.requests == whole.requests
    assert short.seconds == whole.seconds
    asked = [sum(replica.dispatcher.decisions for replica in twin.fleet) for twin in (quick, slow)]
    assert asked[0] < asked[1]


@pytest.mark.parametrize("pool", [CRAMPED, BUSY], ids=["too few slots", "too few rows"])
def test_adapters_move_as_if_every_change_were_planned_for(pool: PoolShape) -> None:
    short, quick = _outcome(traffic(for_s=20.0), pool, None)
    whole, slow = _outcome(traffic(for_s=20.0), pool, _plan_after_every_change)
    assert short.requests == whole.requests
    assert short.seconds == whole.seconds
    planned = [sum(replica.convergence.plans for replica in twin.fleet) for twin in (quick, slow)]
    assert planned[0] < planned[1]


def test_what_is_seen_at_a_glance_is_what_the_worker_plans() -> None:
    """Cold replicas whose slots are filled more slowly than their RAM."""
    slow = Timing(slot_bytes_per_s=20e6)
    twin = Twin(scenario(traffic(for_s=20.0), ROOMY, warm=False, timing=slow))
    seen = Counter[Step | None]()

    def compare() -> None:
        for replica in twin.fleet:
            convergence = replica.convergence
            if (glance := convergence.glance()) is not None:
                whole = convergence.plan(convergence.held())
                assert msgspec.structs.replace(glance[0], reason=whole.reason) == whole
                seen.update({action.step for action in whole.actions} or {None})

    twin.agenda.every(0.05, compare)
    twin.run()
    assert all(seen[step] > 20 for step in (None, Step.FETCH, Step.READ, Step.LOAD))
