"""How gateways ask the ledger of limits for many at once, and what a turn costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.gateway.core.allowance import Denial, Pass
from services.gateway.io.limits_redis import CONNECTIONS
from shared.messages.desired import Limits as Limited
from tests.support.limits_counter import Counter

TENANTS = 450


@pytest.fixture
async def counter() -> AsyncIterator[Counter]:
    opened = Counter(Limited(streams=3), places_wait_s=20.0)
    yield opened
    await opened.close()


async def all_ask(counter: Counter) -> list[bool]:
    """Whether each was let in by the ledger's word."""
    decided = await asyncio.gather(*(counter.ask(f"t{at}") for at in range(TENANTS)))
    return [isinstance(each, Pass) and not each.alone for each in decided]


async def one_by_one(counter: Counter) -> list[asyncio.Task[Pass | Denial]]:
    """More of them than there are connections, none with another, and all under way."""
    coming: list[asyncio.Task[Pass | Denial]] = []
    for at in range(2 * CONNECTIONS):
        coming.append(asyncio.create_task(counter.ask(f"one {at}")))
        await asyncio.wait(coming, timeout=0.002)
    return coming


async def test_many_who_come_at_once_do_not_wait_for_connections(counter: Counter) -> None:
    """One that there is none for would take the ledger for one that is away."""
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = True
    coming = await one_by_one(counter)
    many = asyncio.create_task(all_ask(counter))
    await asyncio.wait([many], timeout=0.02)
    counter.office.hangs = False
    counter.office.opens.set()
    assert await many == [True] * TENANTS
    assert [type(each) for each in await asyncio.gather(*coming)] == [Pass] * len(coming)
    assert counter.office.most_at_once <= CONNECTIONS
    assert max(counter.office.asked) <= 200
    assert len(counter.office.asked) < 20


async def test_each_comes_as_soon_as_a_line_is_free(counter: Counter) -> None:
    """Who comes while others are under way does not wait for them."""
    counter.office.hangs = True
    held = asyncio.create_task(counter.ask("held"))
    await asyncio.wait([held], timeout=0.01)
    counter.office.hangs = False
    assert isinstance(await counter.ask("free"), Pass)
    assert not held.done()
    counter.office.opens.set()
    assert isinstance(await held, Pass)


async def test_nobody_waits_for_a_turn_that_asks_nothing_of_him(counter: Counter) -> None:
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = True
    turn = asyncio.create_task(counter.limits.turn())
    await asyncio.wait([turn], timeout=0.01)
    counter.office.hangs = False
    assert isinstance(await counter.ask(), Pass)
    assert not turn.done()
    counter.office.opens.set()
    await turn


async def test_a_turn_that_asked_nothing_of_him_leaves_his_own_question_alone(counter: Counter) -> None:
    """There is one at a time about each."""
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs, of_turn = True, counter.office.opens
    turn = asyncio.create_task(counter.limits.turn())
    await asyncio.wait([turn], timeout=0.01)
    counter.office.opens = asyncio.Event()
    asking = [asyncio.create_task(counter.ask())]
    await asyncio.wait(asking, timeout=0.01)
    of_turn.set()
    await turn
    asked = len(counter.office.asked)
    asking.append(asyncio.create_task(counter.ask()))
    await asyncio.wait(asking, timeout=0.01)
    assert len(counter.office.asked) == asked
    counter.office.hangs = False
    counter.office.opens.set()
    assert [type(await each) for each in asking] == [Pass, Pass]


async def test_a_turn_asks_once_for_all_who_have_something_to_say(counter: Counter) -> None:
    assert all(await all_ask(counter))
    await counter.clock.advance(2.0)
    counter.office.asked.clear()
    await counter.limits.turn()
    assert sorted(counter.office.asked) == [51, 199, 200], "to keep the places, and nobody asks who the ledger is"


async def test_a_turn_of_tenants_who_have_nothing_to_say_asks_once_who_the_ledger_is(counter: Counter) -> None:
    assert all(await all_ask(counter))
    counter.office.asked.clear()
    await counter.limits.turn()
    assert counter.office.asked == [1]


async def test_a_turn_leaves_lines_to_those_who_wait(counter: Counter) -> None:
    assert all(await all_ask(counter))
    await counter.clock.advance(2.0)
    counter.office.hangs, counter.office.most_at_once = True, 0
    turn = asyncio.create_task(counter.limits.turn())
    await asyncio.wait([turn], timeout=0.02)
    assert counter.office.most_at_once == 1
    counter.office.hangs = False
    counter.office.opens.set()
    await turn


async def test_those_who_wait_for_a_line_do_not_ask_a_ledger_that_is_away(counter: Counter) -> None:
    """They would wait for it as long once more; and when it is back nobody asks for them."""
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = counter.office.away = True
    coming = await one_by_one(counter)
    counter.office.asked.clear()
    counter.office.opens.set()
    assert [(await each).alone for each in coming] == [True] * len(coming)  # type: ignore[union-attr]
    assert counter.office.asked == []
    counter.office.hangs = counter.office.away = False
    await counter.limits.turn()
    held = [counter.office.paper.held(f"tenant one {at}") for at in range(len(coming))]
    assert held == [1] * len(coming)
