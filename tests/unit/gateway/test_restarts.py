"""When a worker that ended is started again."""

from __future__ import annotations

from services.gateway.core.restarts import Restart, RestartPolicy, after_end

POLICY = RestartPolicy(first_s=0.5, most_s=3.0, settled_s=10.0, most_early=5)


def test_pauses_double_up_to_the_longest_and_then_it_is_given_up() -> None:
    early, pauses = 0, []
    for _ in range(6):
        restart = after_end(early, 1.0, POLICY)
        early = restart.early
        pauses.append(restart.pause_s)
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0, None]


def test_whoever_lived_for_long_begins_anew() -> None:
    assert after_end(4, 10.0, POLICY) == Restart(pause_s=0.5, early=1)
