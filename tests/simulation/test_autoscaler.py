"""The autoscaler against fleets that answer back, in virtual time; the figures it turns on are held against an oracle
that knows the load in advance."""

from __future__ import annotations

import itertools

import pytest

from tests.simulation.scaling_world import CAPACITY, REQUEST_TOKENS, Setup, World, day, score

ONE = CAPACITY / REQUEST_TOKENS
"""Requests/s that fill a replica."""


def wishes(world: World) -> list[int]:
    """The wish, whenever it changed."""
    return [desired for desired, _ in itertools.groupby(second.decision.desired for second in world.seconds)]


def reasons(world: World) -> str:
    return "\n".join(second.decision.reason for second in world.seconds)


def test_a_day_with_bursts_is_served_at_little_more_than_an_oracle_needs() -> None:
    """Four hours of its morning, in which the load doubles."""
    rate = day(40.0, seed=7)
    world = World(rate, Setup(replicas=11, start_s=30.0, seed=7, noise=1.5, begin_s=18_000.0)).run(14_400)
    found = score(world.seconds, rate, world.policy.need.utilisation)
    assert found.attained >= 0.97
    assert found.attained_requests >= 0.97
    assert found.hours_over_oracle <= 1.15
    assert found.reversals <= 24
    assert world.cut_off < 0.5


def test_a_step_up_is_answered_within_seconds_and_by_the_right_number() -> None:
    world = World(lambda now_s: 1.5 * ONE if now_s < 400 else 6.0 * ONE, Setup(replicas=2, start_s=30.0)).run(900)
    assert max(wishes(world)) <= 9
    assert next(s.at_s for s in world.seconds if s.decision.desired >= 6) <= 425
    assert all(second.wait_s < 1.0 for second in world.seconds[550:])
    assert 8 <= world.seconds[-1].serving <= 9


def test_a_step_down_is_followed_after_minutes_and_nobody_is_cut_off() -> None:
    world = World(lambda now_s: 6.0 * ONE if now_s < 400 else 1.3 * ONE, Setup(replicas=8)).run(1_800)
    first = next(s.at_s for s in world.seconds if s.decision.desired < 8)
    assert 400 + 180 <= first <= 400 + 360
    assert (world.seconds[-1].serving, world.seconds[-1].there) == (2, 2)
    assert world.cut_off < 0.5
    assert wishes(world) == sorted(wishes(world), reverse=True)


def test_c73_while_replicas_start_the_wish_stays_what_the_load_needs() -> None:
    world = World(lambda now_s: 0.5 * ONE if now_s < 60 else 2.2 * ONE, Setup(start_s=120.0)).run(180)
    assert (wishes(world)[-1], world.started) == (3, 2)
    world.run(600)
    assert max(wishes(world)) <= 4
    assert world.seconds[-1].wait_s < 1.0


def test_c73_without_gateways_the_queue_is_answered_once_and_again_only_after_it_has_helped() -> None:
    world = World(lambda now_s: 2.2 * ONE, Setup(start_s=120.0, gateways=False)).run(120)
    assert (wishes(world), world.started) == ([1, 2], 1)
    assert "1 replicas are still starting" in reasons(world)
    world.run(1_000)
    assert max(wishes(world)) <= 8
    assert world.seconds[-1].wait_s < 1.0


def test_c73_if_pending_replicas_were_not_counted_they_would_be_started_every_second() -> None:
    """The fault planted: the actuator does not name what it starts."""
    world = World(lambda now_s: 2.2 * ONE, Setup(start_s=120.0))
    world.hides_starts = True
    assert world.run(60).started > 50


def test_replicas_that_never_become_ready_stop_counting_and_are_replaced_less_and_less_often() -> None:
    world = World(lambda now_s: 2.2 * ONE, Setup(start_s=30.0))
    world.breaks_starts = True
    world.run(1_500)
    assert max(second.there for second in world.seconds) <= 4
    assert 4 <= world.started <= 8
    assert world.seconds[100].decision.pending == 2
    assert "what was started was not ready within 180 s, 2 times in a row; the next try is in" in reasons(world)
    world.breaks_starts = False
    world.run(2_000)
    assert world.seconds[-1].wait_s < 1.0


def test_a_load_that_returns_takes_back_the_replicas_that_still_drain() -> None:
    world = World(lambda now_s: 3.0 * ONE if now_s < 60 else 0.5 * ONE, Setup(replicas=4))
    while not world.seconds or len(world.seconds[-1].decision.drain) == 0:
        world.run(1)
    began_s = world.now_s
    world.rate = lambda now_s: 3.0 * ONE
    world.run(120)
    assert (world.started, world.seconds[-1].serving) == (0, 4)
    assert any(second.decision.undrain for second in world.seconds if second.at_s >= began_s)


def test_a_gap_in_our_hearing_changes_nothing() -> None:
    world = World(lambda now_s: 2.7 * ONE, Setup(replicas=4)).run(60)
    world.deaf = True
    world.run(60)
    world.deaf = False
    world.run(400)
    assert (wishes(world), world.started, world.cut_off) == ([4], 0, 0.0)
    assert "4 replicas fell silent at once, so it is rather we who do not hear" in reasons(world)


@pytest.mark.parametrize(("silence_s", "started"), [(2, 0), (20, 0), (40, 1)])
def test_one_silent_replica_keeps_its_place_until_it_is_lost(silence_s: int, started: int) -> None:
    world = World(lambda now_s: 2.7 * ONE, Setup(replicas=4)).run(60)
    world.replicas["r001"].silent = True
    world.run(silence_s)
    world.replicas["r001"].silent = False
    world.run(60)
    assert (wishes(world), world.started) == ([4], started)


def test_a_burst_of_a_minute_leaves_no_lasting_fleet_behind() -> None:
    world = World(lambda now_s: 8.0 * ONE if 120 <= now_s < 180 else 2.0 * ONE, Setup(replicas=3)).run(1_500)
    assert max(wishes(world)) >= 8
    assert world.seconds[-1].there == 3
    assert len(wishes(world)) >= 3
