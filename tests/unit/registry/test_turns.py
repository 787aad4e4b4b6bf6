"""Turns: tenants take them in turn, a batch of registrations goes first, and keeps nobody waiting for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
import pytest

from services.registry import policies
from services.registry.core.turns import Entrant, Leave, Sight, TurnPolicy, may_begin, rest_s
from services.registry.precedence import Precedence
from services.registry.turns import Turns
from shared.runtime.clock import ManualClock
from tests.support.registry_world import settings

POLICY = TurnPolicy(at_once=4, give_way_s=600.0, longest_rest_s=10.0)
CALM = Sight(batch=False, under_way=0, first_under_way=0, oldest_since_s=0.0, rest_until_s=0.0)
BATCH = Sight(batch=True, under_way=0, first_under_way=0, oldest_since_s=0.0, rest_until_s=0.0)
TOOK_S = 0.125


def one(adapter_id: str, tenant_id: str = "acme", **more: bool) -> Entrant:
    return Entrant(adapter_id=adapter_id, tenant_id=tenant_id, **more)


class Fleet:
    """Those in line, each with a turn of TOOK_S; `done` has them in the order of their ends, and when that was."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.precedence = Precedence()
        self.turns = Turns(POLICY, self.precedence, self.clock)
        self.done: dict[str, float] = {}
        self.at_once = self.most_at_once = 0
        self.tasks: list[asyncio.Task[None]] = []

    def enter(self, *entrants: Entrant) -> None:
        self.tasks += [asyncio.create_task(self._attend(entrant)) for entrant in entrants]

    @contextmanager
    def batch(self) -> Iterator[None]:
        with ExitStack() as going:
            for _ in range(4):
                going.enter_context(self.precedence.going())
            yield

    async def _attend(self, entrant: Entrant) -> None:
        async with self.turns.turn(entrant):
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self.clock.sleep_s(TOOK_S)
            self.at_once -= 1
            self.done[entrant.adapter_id] = self.clock.now_s()


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with running() as fleet:
        yield fleet


@asynccontextmanager
async def running() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.turns.stop()
    for task in fleet.tasks:
        task.cancel()
    await asyncio.gather(*fleet.tasks, return_exceptions=True)


def changed(sight: Sight, **more: float) -> Sight:
    return Sight(**{name: getattr(sight, name) for name in sight.__struct_fields__} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sight", "begun", "granted"),
    [
        (CALM, False, True),
        (changed(CALM, under_way=3, first_under_way=3), False, True),
        (changed(CALM, under_way=4), False, False),
        (changed(CALM, under_way=4), True, False),
        (BATCH, False, True),
        (changed(BATCH, under_way=1, first_under_way=1), False, False),
        (changed(BATCH, under_way=1), False, True),
        (changed(BATCH, under_way=1, first_under_way=1), True, True),
        (changed(BATCH, rest_until_s=101.0), False, False),
        (changed(BATCH, rest_until_s=101.0), True, True),
        (changed(BATCH, under_way=1, first_under_way=1, oldest_since_s=-500.0), False, True),
    ],
)
def test_what_may_begin(sight: Sight, begun: bool, granted: bool) -> None:
    assert may_begin(sight, POLICY, 100.0, begun=begun).granted is granted


def test_who_is_held_up_is_looked_at_again_once_time_has_changed_that() -> None:
    resting = may_begin(changed(BATCH, rest_until_s=101.0), POLICY, 100.0, begun=False)
    full = may_begin(changed(BATCH, first_under_way=1), POLICY, 100.0, begun=False)
    assert (resting.again_at_s, full.again_at_s) == (101.0, 600.0)
    assert may_begin(changed(CALM, under_way=4), POLICY, 100.0, begun=False).again_at_s is None


def test_a_rest_has_an_end() -> None:
    assert (rest_s(TOOK_S, POLICY), rest_s(60.0, POLICY)) == (9 * TOOK_S, 10.0)


async def test_in_a_batch_one_turn_at_a_time_takes_a_tenth_of_the_time(fleet: Fleet) -> None:
    with fleet.batch():
        fleet.enter(*(one(f"a{number}") for number in range(100)))
        await fleet.clock.advance(50 * 10 * TOOK_S)
        assert (len(fleet.done), fleet.most_at_once) == (50, 1)


async def test_after_the_batch_everybody_has_a_turn_at_full_speed(fleet: Fleet) -> None:
    with fleet.batch():
        fleet.enter(*(one(f"a{number}") for number in range(100)))
        await fleet.clock.advance(10 * TOOK_S)
    await batch_is_over(fleet)
    began_s = fleet.clock.now_s()
    await fleet.clock.advance(25 * TOOK_S)
    assert len(fleet.done) == 100
    assert fleet.most_at_once == 4
    assert max(fleet.done.values()) <= began_s + 25 * TOOK_S


async def test_a_batch_that_never_ends_starves_nobody(fleet: Fleet) -> None:
    """From when somebody has waited for long enough all go on beside it, in their order."""
    with fleet.batch():
        fleet.enter(*(one(f"a{number:04d}") for number in range(2000)))
        await fleet.clock.advance(600.0)
        before = len(fleet.done)
        assert 480 <= before <= 481  # a tenth of the time
        await fleet.clock.advance((2000 - before) / 4 * TOOK_S + 1.0)
        assert list(fleet.done) == sorted(fleet.done)
        assert len(fleet.done) == 2000


async def test_a_line_of_many_tenants_is_no_slower_to_look_at(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each customer may have a lane of its own, and every adapter that is registered has the line looked at."""
    asked = list[bool]()

    def counted(sight: Sight, policy: TurnPolicy, now_s: float, *, begun: bool) -> Leave:
        asked.append(begun)
        return may_begin(sight, policy, now_s, begun=begun)

    monkeypatch.setattr("services.registry.turns.may_begin", counted)
    with fleet.batch():
        fleet.enter(*(one(f"a{number}", f"t{number}") for number in range(1000)))
        await fleet.clock.advance(TOOK_S)
    assert list(fleet.done) == ["a0"]
    assert len(asked) < 2 * 1000 + 10


async def test_another_tenants_adapter_waits_for_one_turn_of_each_lane(fleet: Fleet) -> None:
    with fleet.batch():
        fleet.enter(*(one(f"a{number}") for number in range(1000)), one("b", "other"))
        await fleet.clock.advance(21 * TOOK_S)
        assert "b" in fleet.done


async def test_one_that_somebody_waits_for_passes_its_own_tenants_batch(fleet: Fleet) -> None:
    with fleet.batch():
        fleet.enter(*(one(f"a{number}") for number in range(1000)), one("wanted", awaited=True))
        await fleet.clock.advance(21 * TOOK_S)
        assert "wanted" in fleet.done


async def test_what_has_begun_goes_on_beside_the_batch(fleet: Fleet) -> None:
    """Its deadline is running, and whoever set that may not make it wait."""
    with fleet.batch():
        fleet.enter(*(one(f"a{number}") for number in range(1000)))
        await fleet.clock.advance(2 * TOOK_S)
        fleet.enter(one("again", begun=True))
        await fleet.clock.advance(TOOK_S)
        assert "again" in fleet.done


@pytest.mark.parametrize("in_batch", [False, True])
async def test_retries_without_end_leave_turns_to_others(fleet: Fleet, in_batch: bool) -> None:
    async def retry(adapter_id: str) -> None:
        while True:
            async with fleet.turns.turn(one(adapter_id, begun=True)):
                await fleet.clock.sleep_s(TOOK_S)

    with fleet.batch() if in_batch else nullcontext():
        fleet.tasks += [asyncio.create_task(retry(f"r{number}")) for number in range(50)]
        fleet.enter(one("new"), one("newer"))
        await fleet.clock.advance(13 * TOOK_S)
        assert set(fleet.done) == {"new", "newer"}


async def test_who_leaves_the_line_takes_no_turn_along(fleet: Fleet) -> None:
    fleet.enter(*(one(f"a{number}") for number in range(8)))
    await fleet.clock.advance(TOOK_S / 2)
    for task in fleet.tasks[:6]:  # four of them in the middle of their turns
        task.cancel()
    await fleet.clock.advance(TOOK_S)
    assert set(fleet.done) == {"a6", "a7"}


async def test_a_turn_that_comes_as_its_owner_leaves_goes_on(fleet: Fleet) -> None:
    held = [fleet.turns.turn(one(f"h{number}")) for number in range(4)]
    for turn in held:
        await turn.__aenter__()
    fleet.enter(one("leaves"), one("stays"))
    await asyncio.sleep(0)
    await held[0].__aexit__(None, None, None)
    fleet.tasks[0].cancel()
    with suppress(asyncio.CancelledError):
        await fleet.tasks[0]
    await fleet.clock.advance(TOOK_S)
    assert set(fleet.done) == {"stays"}


@pytest.mark.parametrize(("deadline_s", "give_way_s"), [(600.0, 480.0), (60.0, 48.0)])
def test_giving_way_ends_before_a_deadline_does(tmp_path: Path, deadline_s: float, give_way_s: float) -> None:
    """Or a single turn that lasts would have whoever waits for it fail."""
    said = settings(tmp_path, evaluation_deadline_s=deadline_s)
    policy = policies.turns(said, gives_way=True)
    assert policy.give_way_s == give_way_s
    assert policy.give_way_s + policy.longest_rest_s < deadline_s
    assert policies.turns(said, gives_way=False).give_way_s == 0.0


async def test_what_is_known_from_before_has_waited_since_then(fleet: Fleet) -> None:
    """After a restart in the middle of a batch."""
    await fleet.clock.advance(1000.0)
    old = [msgspec.structs.replace(one(f"a{number}"), ready_at_s=300.0 + number) for number in range(8)]
    with fleet.batch():
        fleet.enter(one("young", "other"), *old)
        await fleet.clock.advance(3 * TOOK_S)
    assert set(fleet.done) == {"young", *(each.adapter_id for each in old)}


async def batch_is_over(fleet: Fleet) -> None:
    over = asyncio.Event()
    fleet.precedence.follow(over.set)
    await asyncio.wait_for(over.wait(), 5.0)
