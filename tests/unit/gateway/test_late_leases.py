"""What is said to whoever is refused because the ledger did not answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.gateway.core.allowance import Decision, Denial, Late, Pass
from shared.messages.desired import Limits as Limited
from tests.support.limits_counter import ONE, Counter
from tests.unit.gateway.town import Town


@pytest.fixture
async def counter() -> AsyncIterator[Counter]:
    opened = Counter()
    yield opened
    await opened.close()


async def test_what_the_ledger_said_last_is_said_again(counter: Counter) -> None:
    assert isinstance(await counter.ask(), Pass)
    assert isinstance(await counter.ask(), Pass)
    told = await counter.ask()
    assert isinstance(told, Denial)
    assert told.retry_after_s == pytest.approx(61.0)
    await counter.clock.advance(20.0)
    counter.office.hangs = True
    late = await counter.ask()
    assert isinstance(late, Denial)
    assert late.retry_after_s == pytest.approx(41.0)


async def test_a_ledger_that_has_not_said_no_may_know_of_more_in_a_moment(counter: Counter) -> None:
    counter.office.hangs = True
    assert isinstance(await counter.ask(), Pass)
    assert isinstance(await counter.ask(), Pass)
    late = await counter.ask()
    assert isinstance(late, Denial)
    assert late.retry_after_s == 1.0


async def test_a_stream_waits_for_a_slow_ledger_to_say_whether_there_is_a_place() -> None:
    """Of requests it would be let in by the own share after a millisecond."""
    counter = Counter(Limited(streams=1, requests_per_min=1), places_wait_s=20.0)
    counter.office.hangs = True
    first = asyncio.create_task(counter.ask())
    await asyncio.wait([first], timeout=0.02)
    assert not first.done()
    counter.office.hangs = False
    counter.office.opens.set()
    assert isinstance(admitted := await first, Pass)
    assert not admitted.alone
    await counter.close()


async def test_a_stream_that_waits_for_a_ledger_which_is_away_goes_by_the_share_at_once() -> None:
    counter = Counter(Limited(streams=1), places_wait_s=20.0)
    counter.office.hangs = counter.office.away = True
    first = asyncio.create_task(counter.ask())
    await asyncio.wait([first], timeout=0.01)
    counter.office.opens.set()
    assert isinstance(admitted := await first, Pass)
    assert admitted.alone
    await counter.close()


async def test_a_stream_does_not_wait_for_ever() -> None:
    counter = Counter(Limited(streams=1))
    counter.office.hangs = True
    refused = await counter.ask()
    assert isinstance(refused, Denial)
    assert (refused.kind, refused.retry_after_s) == ("streams", 1.0)
    await counter.close()


async def test_who_waits_for_a_minute_while_others_take_the_place_waits_for_a_place_then() -> None:
    """Of 40 there are 3 here, and one of them is taken."""
    counter = Counter(Limited(streams=40, requests_per_min=1_000), places_wait_s=20.0)
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = True
    asking = [asyncio.create_task(counter.ask()) for _ in range(3)]
    waiting = {*asking}
    while len(waiting) > 1:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    counter.office.hangs = False
    counter.office.opens.set()
    assert [type(await each) for each in asking] == [Pass] * 3
    await counter.close()


async def test_a_request_that_waited_for_two_things_counts_once() -> None:
    counter = Counter(Limited(streams=40, requests_per_min=1_000))
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = True
    decided = await asyncio.gather(*(counter.ask() for _ in range(3)))
    assert [type(each) for each in decided] == [Pass, Pass, Denial]
    assert b'lorafleet_gateway_limit_waits_total{came="late"} 3.0' in counter.metrics.exposition()
    await counter.close()


async def test_a_ledger_whose_answers_cannot_be_used_is_not_asked_for_ever(counter: Counter) -> None:
    counter.office.fails = True
    assert isinstance(admitted := await counter.ask(), Pass)
    assert admitted.alone


async def test_who_leaves_while_he_waits_for_a_place_holds_none() -> None:
    counter = Counter(Limited(streams=2), places_wait_s=20.0)
    assert isinstance(await counter.ask(), Pass)
    counter.office.hangs = True
    leaving = asyncio.create_task(counter.ask())
    await asyncio.wait([leaving], timeout=0.01)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    counter.office.hangs = False
    counter.office.opens.set()
    while counter.office.paper.held("tenant acme") != 2:
        await counter.clock.advance(0.0)
    while counter.office.paper.held("tenant acme") != 1:
        await counter.limits.turn()
        await asyncio.sleep(0)
    await counter.close()


def late(town: Town, now_s: float) -> Decision:
    """What the first gateway says to whoever has waited in vain for the ledger."""
    return town.gateways[0].admit((town.subject,), ONE, now_s, alone=False, late=Late.PLACES)


def test_a_ledger_that_is_late_has_foretold_when_there_is_more() -> None:
    town = Town(2, Limited(requests_per_min=4))
    town.ask(1), town.ask(1)
    town.now_s = 10.0
    town.ask(0), town.ask(0)
    unheard = late(town, 10.5)
    assert isinstance(unheard, Denial)
    assert unheard.retry_after_s == 1.0, "it has not said no yet"
    town.now_s = 11.0
    denied = town.ask(0)
    assert isinstance(denied, Denial)
    foretold_s = denied.retry_after_s
    assert foretold_s == pytest.approx(49.6)
    again = late(town, 21.0)
    assert isinstance(again, Denial)
    assert again.retry_after_s == pytest.approx(foretold_s - 10.0)
    town.now_s = 61.0
    assert isinstance(town.ask(0), Pass)
    assert isinstance(town.ask(0), Pass)
    since = late(town, 61.5)
    assert isinstance(since, Denial)
    assert since.retry_after_s == 1.0, "it has said yes since"


def test_what_the_ledger_said_goes_before_the_own_share() -> None:
    """Another gateway has had all of it, and this one nothing."""
    town = Town(2, Limited(requests_per_min=4))
    assert isinstance(late(town, 0.0), Pass), "it has said nothing"
    town = Town(2, Limited(requests_per_min=4))
    for _ in range(4):
        town.ask(1)
    assert isinstance(town.ask(0), Denial)
    told = late(town, 5.0)
    assert isinstance(told, Denial)
    assert told.retry_after_s == pytest.approx(55.6)
