"""Reports become loads, and silence neither blocks nor fools anybody."""

from __future__ import annotations

import pytest

from services.autoscaler.core.fold import HeardReplica, SilencePolicy, loads, newer, queued_tokens, silent_replicas
from tests.simulation.speakers import POOL, report

POLICY = SilencePolicy()


def test_sums_are_over_the_replicas_that_are_heard() -> None:
    heard = [
        HeardReplica(report=report("r1", running=4, queue_depth=4, tokens_in_flight=800, tokens_per_s=100.0), at_s=0.0),
        HeardReplica(report=report("r2", ready=False), at_s=0.0),
        HeardReplica(report=report("r3", draining=True, running=1, tokens_in_flight=50), at_s=0.0),
    ]
    load = loads(heard, 0.0, POLICY)[POOL]
    assert (load.ready, load.starting, load.draining, load.replicas) == (1, 1, 1, 3)
    assert (load.running, load.queue_depth, load.tokens_in_flight) == (5, 4, 850)
    assert (load.queued_tokens, load.rows, load.slots) == (400.0, 32, 4)
    assert (load.busy, load.busy_tokens_per_s) == (1, 100.0)


def test_the_stale_load_of_a_silent_replica_is_not_counted() -> None:
    heard = {
        "r1": HeardReplica(report=report("r1", running=1), at_s=10.0),
        "r2": HeardReplica(report=report("r2", queue_depth=99, tokens_in_flight=10**6), at_s=6.9),
    }
    load = loads(heard.values(), 10.0, POLICY)[POOL]
    assert (load.ready, load.silent, load.queue_depth, load.tokens_in_flight) == (1, 1, 0, 0)
    assert silent_replicas(heard, 10.0, POLICY) == ("r2",)


@pytest.mark.parametrize(("age_s", "silent"), [(3.0, ()), (3.1, ("r1",)), (30.0, ("r1",)), (30.1, ())])
def test_silence_has_a_beginning_and_an_end(age_s: float, silent: tuple[str, ...]) -> None:
    heard = {"r1": HeardReplica(report=report("r1"), at_s=0.0)}
    assert silent_replicas(heard, age_s, POLICY) == silent


def test_a_repeated_report_is_no_sign_of_life_and_a_new_incarnation_is() -> None:
    before = newer(None, report("r1", 5), 0.0)
    assert newer(before, report("r1", 5), 4.0) is before
    assert newer(before, report("r1", 1, incarnation="second"), 4.0).at_s == 4.0


def test_pools_are_apart() -> None:
    heard = [HeardReplica(report=report(name, pool_id=name), at_s=0.0) for name in ("p1", "p2")]
    assert {pool: load.ready for pool, load in loads(heard, 0.0, POLICY).items()} == {"p1": 1, "p2": 1}


def test_an_idle_replica_has_nothing_queued() -> None:
    assert queued_tokens(report("r1")) == 0.0
