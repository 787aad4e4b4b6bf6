"""Limits of streams over two gateways whose Valkey answers late, or is away: nobody takes a place twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from services.gateway.core.allowance import Late, Pass
from services.gateway.core.allowances import Allowances
from services.gateway.io.limits_redis import RedisLedger
from services.gateway.limits import TURN_S
from services.gateway.settings import Settings
from shared.messages.desired import Limits
from tests.support.gateway_world import SETTINGS, World, gateway_world
from tests.support.limited_gateways import Door, complete, limit, two_gateways
from tests.support.limits_counter import Counter
from tests.support.slow_link import SlowLink, slow_link
from tests.support.valkey_server import ValkeyServer

pytestmark = pytest.mark.deadline(60)
DELAYS_S = (0.08, 0.2, 0.6)
"""All of them longer than a request waits for a lease of a minute."""


@pytest.fixture
async def link(valkey: ValkeyServer) -> AsyncIterator[SlowLink]:
    async with slow_link(valkey.url) as opened:
        yield opened


def using(link: SlowLink, **changes: float) -> Settings:
    """Streams wait for longer than any machine is busy, and all others as short as ever."""
    patient: dict[str, float] = {"limits_streams_wait_s": 20.0, "redis_timeout_s": 10.0, **changes}
    return msgspec.structs.replace(SETTINGS, redis_url=link.url, **patient)


async def begun(world: World, *doors: Door) -> list[tuple[asyncio.Task[Any], object]]:
    """Streams that run, one at each door, with what the replica was asked."""
    [replica] = world.replicas
    running = []
    for door in doors:
        answer = asyncio.create_task(door.post())
        running.append((answer, await replica.asked.get()))
    return running


async def begun_once_free(world: World, door: Door) -> list[tuple[asyncio.Task[Any], object]]:
    """The same of one that is refused until everybody knows that there is a place."""
    [replica] = world.replicas
    asked = asyncio.create_task(replica.asked.get())
    while True:
        answer = asyncio.create_task(door.post())
        await asyncio.wait([answer, asked], return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return [(answer, asked.result())]
        assert (await answer).status_code == 429
        await world.clock.advance(TURN_S)


async def end(world: World, running: list[tuple[asyncio.Task[Any], object]]) -> None:
    for answer, asked in running:
        await complete(world.replicas[0], asked)
        assert (await answer).status_code == 200


async def met_by(world: World, link: SlowLink, *doors: Door) -> None:
    """All of these know the ledger, have a connection for a turn besides, and hold no place. Those who come at once
    meet it as slow as it is."""
    link.delay_s = 0.01
    running = await begun(world, *doors)
    await end(world, running)
    await world.clock.advance(TURN_S)


async def assert_refused(*doors: Door) -> None:
    for refused in await asyncio.gather(*(door.post() for door in doors)):
        assert_says_so(refused)


def assert_says_so(refused: httpx.Response) -> None:
    assert refused.status_code == 429, refused.text
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("1", "1000")
    assert refused.json()["error"]["message"].startswith("The limit of tenant acme, 3 streams at once, is reached.")


@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("held_by", ["one", "both"])
async def test_a_slow_ledger_lets_three_of_three_in_and_no_fourth(link: SlowLink, delay_s: float, held_by: str) -> None:
    chosen = using(link)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        await met_by(world, link, first, second)
        link.delay_s = delay_s
        running = await begun(world, first, first if held_by == "one" else second, first)
        await assert_refused(second, first)
        await first.shows("lorafleet_gateway_limits_fallback 0.0")
        await end(world, running[:1])
        running = [*running[1:], *await begun_once_free(world, second)]
        await assert_refused(first, second)
        link.delay_s = 0.0
        await end(world, running)


@pytest.mark.parametrize("delay_s", DELAYS_S)
async def test_many_who_come_at_once_get_the_places_that_there_are(link: SlowLink, delay_s: float) -> None:
    chosen = using(link)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        link.delay_s = delay_s
        [replica] = world.replicas
        waiting = {asyncio.create_task(door.post()) for door in (first, second) for _ in range(5)}
        refused: set[asyncio.Task[Any]] = set()
        while len(refused) < 7:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert {(await each).status_code for each in refused} == {429}
        link.delay_s = 0.0
        for _ in range(3):
            await complete(replica, await replica.asked.get())
        assert [(await each).status_code for each in waiting] == [200] * 3
        assert replica.asked.empty()


async def test_many_tenants_who_come_at_once_do_not_take_a_slow_ledger_for_one_that_is_away(link: SlowLink) -> None:
    """There are few connections, and each wait for one of them counts as silence: one by one they would take 5 s."""
    counter = Counter(Limits(streams=1), places_wait_s=20.0, ledger=RedisLedger(link.url, 2.5))
    assert isinstance(await counter.ask(), Pass)
    link.delay_s = 0.2
    decided = await asyncio.gather(*(counter.ask(f"t{at}") for at in range(100)))
    assert [isinstance(each, Pass) and not each.alone for each in decided] == [True] * 100
    assert b"lorafleet_gateway_limits_fallback 0.0" in counter.metrics.exposition()
    link.delay_s = 0.0
    await counter.close()


async def test_the_check_fails_where_the_own_share_decides(link: SlowLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went by the own share as soon as the ledger was late let a fourth in."""
    honest = Allowances.admit

    def rash(self: Allowances, *asked: Any, alone: bool, late: Late = Late.IN_TIME) -> Any:
        return honest(self, *asked, alone=alone or bool(late))

    monkeypatch.setattr(Allowances, "admit", rash)
    chosen = using(link, limits_streams_wait_s=0.05)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        running = await begun(world, first, first, first)
        link.delay_s = DELAYS_S[1]
        running += await begun(world, second)
        assert len(running) == 4
        await end(world, running)


async def test_a_ledger_that_does_not_answer_at_all_is_no_reason_to_take_a_place(link: SlowLink) -> None:
    """It is there, as far as is known, and gives none."""
    chosen = using(link, limits_streams_wait_s=0.05)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        running = await begun(world, first, first, first)
        link.delay_s = 5.0
        refused = await second.post()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "may be reached: whoever counts has not answered in time" in refused.json()["error"]["message"]
        await second.shows('lorafleet_gateway_limit_waits_total{came="late"} 1.0')
        link.delay_s = 0.0
        await end(world, running)


async def test_a_ledger_that_is_away_leaves_shares_which_it_hears_of_when_it_is_back(
    link: SlowLink, valkey: ValkeyServer
) -> None:
    chosen = using(link)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        await valkey.kill()
        running = await begun(world, first, second)
        await assert_refused(first, second)
        for door in (first, second):
            await door.shows("lorafleet_gateway_limits_fallback 1.0")
        await valkey.start()
        for door in (first, second):
            await world.clock.advance(TURN_S)
            await door.shows("lorafleet_gateway_limits_fallback 0.0")
        running += await begun_once_free(world, second)
        await assert_refused(first, second)
        await end(world, running)


async def test_a_ledger_that_hangs_is_away_after_its_time_and_nobody_waits_for_it_any_more(link: SlowLink) -> None:
    chosen = using(link, redis_timeout_s=0.3)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=3))
        link.delay_s = 1_000.0
        running = await begun(world, first, second)
        for door in (first, second):
            await door.shows("lorafleet_gateway_limits_fallback 1.0")
            await assert_refused(door)
        await end(world, running)
