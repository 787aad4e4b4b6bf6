"""Whatever happens to processes, clocks and the bus: no two may act at a time, and what is written never goes back."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from loadtest.virtual_time import run_virtually
from shared.leadership import core
from tests.simulation.lease_world import CALM, SKEW, Process, Weather, World

SETTLED_S = 16.0
"""Until every pause, outage and delay of a storm is over, and somebody has taken over."""

FAST, SLOW = 1.0 + SKEW, 1.0 - SKEW


def live(world_of: Callable[[], World], story: Callable[[World], Awaitable[None]]) -> World:
    async def run() -> World:
        world = world_of()
        await story(world)
        await world.end()
        return world

    return run_virtually(run())


def require_order(world: World) -> None:
    """What must be true of every world, calm or not."""
    assert world.overlaps == []
    assert all(len(holders) == 1 for holders in world.led.values()), world.led
    epochs = [epoch for epoch, _ in world.written]
    assert epochs == sorted(epochs)
    assert len(set(world.written)) == len(set(epochs)), "two wrote with one epoch"


async def storm(world: World) -> None:
    await world.pass_s(90.0)
    world.weather = CALM
    await world.pass_s(SETTLED_S)
    (leader,) = world.leaders
    assert world.written[-1] == (leader.leader.standing.epoch, leader.name)


def test_a_storm_never_lets_two_act_and_somebody_acts_after_it() -> None:
    draw, takeovers = random.Random("rates"), 0
    for seed in range(16):
        rates = tuple(draw.choice((SLOW, 1.0, FAST)) for _ in range(2 + seed % 2))
        world = live(partial(World, seed, rates, Weather()), storm)
        require_order(world)
        takeovers += len(world.led) - 1
    assert takeovers > 32, "they were no storms"


async def _led_by_the_first(world: World) -> Process:
    first, *others = world.processes
    world.processes[:] = [first]
    await world.pass_s(2.0)
    world.processes[:] = [first, *others]
    await world.pass_s(2.0)
    assert world.leaders == [first]
    return first


@pytest.mark.parametrize("rates", [(1.0, 1.0), (SLOW, FAST), (FAST, SLOW)])
def test_a_dead_leader_is_followed_within_four_of_the_others_seconds(rates: tuple[float, float]) -> None:
    async def story(world: World) -> None:
        world.kill(await _led_by_the_first(world))
        await world.pass_s(4.0 / rates[1])
        assert [process.name for process in world.leaders] == ["p1"]
        assert world.written[-1] == (2, "p1")

    require_order(live(lambda: World(0, rates, CALM), story))


@pytest.mark.parametrize("pause_s", [0.5, 2.0, 3.0, 3.4, 20.0])
def test_a_paused_leader_writes_nothing_once_another_acts(pause_s: float) -> None:
    async def story(world: World) -> None:
        first = await _led_by_the_first(world)
        world.pause(first, pause_s)
        await world.pass_s(pause_s + 5.0)
        assert len(world.leaders) == 1

    world = live(lambda: World(1, (1.0, 1.0, 1.0), CALM), story)
    require_order(world)
    assert len(world.led) == (1 if pause_s < 3.0 else 2)


def test_an_outage_ends_all_acting_in_time_and_costs_the_leader_nothing() -> None:
    async def story(world: World) -> None:
        first = await _led_by_the_first(world)
        world.take_away(30.0)
        await world.pass_s(3.0)
        assert world.leaders == []
        await world.pass_s(28.0)
        assert world.leaders == [first]

    world = live(lambda: World(2, (1.0, 1.0, 1.0), CALM), story)
    require_order(world)
    assert set(world.led) == {1}


def test_without_the_margin_clocks_that_differ_would_let_two_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that is checked can fail."""
    monkeypatch.setattr(core, "MARGIN", 0.0)

    async def story(world: World) -> None:
        first = await _led_by_the_first(world)
        world.pause(first, 20.0)
        await world.pass_s(6.0)

    world = live(lambda: World(3, (SLOW, FAST), CALM), story)
    assert world.overlaps


def test_even_who_never_looks_at_the_clock_cannot_undo_what_a_successor_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare-and-set and the epoch alone keep the record in order."""

    async def story(world: World) -> None:
        for process in world.processes:
            monkeypatch.setattr(process.ledger, "_may_write", lambda epoch: True)
        await world.pass_s(120.0)

    world = live(lambda: World(4, (SLOW, 1.0, FAST), Weather(pauses=0.2)), story)
    require_order(world)
    assert len(world.led) > 3
