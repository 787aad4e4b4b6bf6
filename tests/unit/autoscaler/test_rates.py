"""What a replica can do: its own word, and what is made of it where nobody says anything."""

from __future__ import annotations

from tests.unit.autoscaler.pools import RATE, asked, at, pool, replicas, wants


def test_a_rate_that_nobody_stands_by_at_most_doubles_a_pool() -> None:
    """An engine that does not say what it can do, on which the first request has just begun."""
    begun = replicas("r1", "r2", capacity_tokens_per_s=0.0, tokens_per_s=1.0, running=32)
    one = at(0.0, pool(begun, demand=asked(1.5)), wants(2))
    assert (one.memory.pace.rate, one.desired) == (1.0, 4)
    coming = pool(begun, existing=frozenset({"r1", "r2", "n1", "n2"}), demand=asked(1.5))
    assert at(1.0, coming, one.memory).desired == 4
    told = at(2.0, pool(replicas("r1", "r2"), demand=asked(1.5)), one.memory)
    assert told.memory.pace.rate == RATE


def test_a_replica_that_waits_beside_free_rows_shows_nothing_of_what_it_can_do() -> None:
    waits = replicas("r1", capacity_tokens_per_s=0.0, tokens_per_s=1.0, running=2, queue_depth=5)
    decision = at(0.0, pool(waits, demand=asked(3.0)), wants(1))
    assert (decision.memory.pace.rate, decision.desired) == (0.0, 1)


def test_what_is_known_of_a_replica_s_rate_outlives_the_moment_in_which_nobody_says_it() -> None:
    known = at(0.0, pool(replicas("r1"), demand=asked(0.5)), wants(1))
    young = pool(replicas("n1", capacity_tokens_per_s=0.0), demand=asked(2.5))
    assert at(1.0, young, known.memory).desired == 3
