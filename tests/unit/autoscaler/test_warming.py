"""A replica that warms is capacity to come, as long as others serve."""

from __future__ import annotations

from services.autoscaler.core.policy import ScalePolicy
from tests.unit.autoscaler.pools import RATE, asked, at, pool, replicas, wants
from tests.unit.autoscaler.test_decide import for_seconds, lowered


def test_a_replica_that_warms_is_coming_and_does_not_serve_yet() -> None:
    load = pool({**replicas("r1", tokens_in_flight=200_000), **replicas("n1", warming=True)}, demand=asked(1.5))
    first = at(0.0, load, wants(2))
    assert (first.desired, first.serving, first.pending, first.start) == (2, 1, 1, 0)
    assert first.capacity_tokens_per_s == RATE
    later = for_seconds(300, load, first.memory, ScalePolicy(), begin=1)
    assert (later.desired, later.pending, later.remove) == (2, 1, ()), "it is there, so it cannot be late"


def test_where_all_warm_they_serve() -> None:
    decision = at(0.0, pool(replicas("r1", "r2", warming=True), demand=asked(1.5)), wants(2))
    assert (decision.serving, decision.pending, decision.start) == (2, 0, 0)


def test_a_replica_that_warms_goes_before_others_and_drains_like_one_that_serves() -> None:
    known = {**replicas("r1", weight=0.5), **replicas("n1", warming=True, running=1)}
    decision = lowered(pool(known, demand=asked(0.5)), 2)
    assert (decision.drain, decision.remove) == (("n1",), ())


def test_a_start_that_warms_is_none_that_failed() -> None:
    starting = pool({**replicas("r1"), **replicas("n1", ready=False)}, demand=asked(1.5))
    failed = for_seconds(200, starting, wants(2, failed_starts=3), ScalePolicy())
    assert failed.memory.failed_starts == 4
    one = at(0.0, starting, wants(2, failed_starts=3))
    warms = at(1.0, pool({**replicas("r1"), **replicas("n1", warming=True)}, demand=asked(1.5)), one.memory)
    assert warms.memory.failed_starts == 0
