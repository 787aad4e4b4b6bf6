"""Limits over gateways of one fleet, with a real Valkey: one limit for all, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from openai import RateLimitError
from redis.asyncio import Redis

from services.gateway.core.allowance import LeasePolicy
from services.gateway.io.limits_redis import keys
from services.gateway.limits import TURN_S
from services.gateway.settings import Settings
from shared.messages.desired import Limits
from shared.runtime.settings import SettingsError
from tests.support.gateway_world import SETTINGS, body, gateway_world
from tests.support.limited_gateways import Door, complete, limit, two_gateways
from tests.support.scripted_replica import PROMPT_TOKENS, ScriptedReplica, says
from tests.support.valkey_server import ValkeyServer

pytestmark = pytest.mark.deadline(60)


def using(url: str) -> Settings:
    """Patient: on a busy machine an answer may take longer than a request should wait for it."""
    return msgspec.structs.replace(SETTINGS, redis_url=url, limits_wait_s=20.0, redis_timeout_s=10.0)


async def test_two_gateways_have_one_limit(valkey: ValkeyServer) -> None:
    chosen = using(valkey.url)
    async with gateway_world(says("hi"), settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(requests_per_min=10))
        both = await asyncio.gather(first.statuses(15), second.statuses(15))
        assert sorted(both[0] + both[1]) == [200] * 10 + [429] * 20


async def test_a_refusal_reads_as_openais(valkey: ValkeyServer) -> None:
    async with gateway_world(says("hi"), settings=using(valkey.url)) as world:
        await limit(world, Limits(requests_per_min=1, tokens_per_min=50_000))
        door = Door(world.assembly)
        let_in = await door.post(max_tokens=20)
        assert let_in.headers["x-ratelimit-remaining-requests"] == "0"
        assert let_in.headers["x-ratelimit-limit-tokens"] == "50000"
        async with world.openai() as client:
            with pytest.raises(RateLimitError, match="1 requests a minute, is reached") as caught:
                await client.chat.completions.create(**body())  # type: ignore[call-overload]
        assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
        assert 50 < int(caught.value.response.headers["retry-after"]) <= 61
        assert caught.value.response.headers["x-ratelimit-limit-requests"] == "1"


async def test_tokens_are_settled_by_what_was_really_used(valkey: ValkeyServer) -> None:
    """Each request promises 900 tokens of 1,000, and comes to 9: all are let in one after another."""
    async with gateway_world(says("hi", " you"), settings=using(valkey.url)) as world:
        await limit(world, Limits(tokens_per_min=1_000))
        door = Door(world.assembly)
        for _ in range(5):
            assert (await door.post(max_tokens=900)).status_code == 200
        await world.clock.advance(LeasePolicy().lease_s + TURN_S)
        async with Redis.from_url(valkey.url) as redis:
            while sum(map(int, await redis.hvals(keys("tenant acme")[2]))) != 5 * (PROMPT_TOKENS + 2):
                await world.clock.advance(TURN_S)


async def test_streams_are_counted_over_gateways_and_free_when_they_end(valkey: ValkeyServer) -> None:
    chosen = using(valkey.url)
    async with gateway_world(None, settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(streams=2))
        [replica] = world.replicas
        running = [asyncio.create_task(first.post()), asyncio.create_task(second.post())]
        asked = [await replica.asked.get() for _ in running]
        assert (await first.post()).status_code == (await second.post()).status_code == 429
        assert (await first.post(n=3)).status_code == 400, "there will never be three"
        await complete(replica, asked[0])
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await world.clock.advance(TURN_S)
        third = asyncio.create_task(second.post())
        for request in (asked[1], await replica.asked.get()):
            await complete(replica, request)
        assert {(await each).status_code for each in (*running, third)} == {200}


async def test_c60_headers_and_body_that_name_another_tenant_are_ignored(valkey: ValkeyServer) -> None:
    """The key decides: whose limits hold, and that nobody escapes them."""
    async with gateway_world(says("hi"), settings=using(valkey.url)) as world:
        await limit(world, Limits(requests_per_min=2), of_key=Limits(streams=5))
        door = Door(world.assembly)
        foreign = {"x-tenant-id": "globex", "x-user": "globex", "openai-organization": "globex", "x-key-id": "k2"}
        statuses = [(await door.post(headers=foreign, user="globex")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert {request.tenant_id for request in await told(world.replicas[0])} == {"acme"}
        async with Redis.from_url(valkey.url) as redis:
            assert {key async for key in redis.scan_iter("lf:limits:*globex*")} == set()


async def test_a_killed_server_leaves_shares_and_comes_back_to_one_limit(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = using(valkey.url)
    async with gateway_world(says("hi"), settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(requests_per_min=20))
        assert await first.statuses(4) == [200] * 4
        await valkey.kill()
        with caplog.at_level(logging.INFO):
            assert sorted(await first.statuses(10)) == [200] * 6 + [429] * 4, "ten are its share, four of them it had"
            assert sorted(await second.statuses(12)) == [200] * 10 + [429] * 2
        await first.shows("lorafleet_gateway_limits_fallback 1.0")
        assert "Redis is away" in caplog.text
        await valkey.start()
        await limit(world, Limits(requests_per_min=25))
        for door in (first, second):
            await world.clock.advance(TURN_S)
            await door.shows("lorafleet_gateway_limits_fallback 0.0")
        await world.clock.advance(TURN_S)
        both = await asyncio.gather(first.statuses(10), second.statuses(10))
        assert sorted(both[0] + both[1]) == [200] * 5 + [429] * 15, "it was told of the twenty that it does not know"


async def test_a_server_that_forgot_is_told_by_a_gateway_that_is_not_asked_any_more(valkey: ValkeyServer) -> None:
    chosen = using(valkey.url)
    async with gateway_world(says("hi"), settings=chosen) as world, two_gateways(world, chosen) as (first, second):
        await limit(world, Limits(requests_per_min=5))
        assert await first.statuses(5) == [200] * 5
        async with Redis.from_url(valkey.url) as redis, asyncio.timeout(10):
            await redis.flushall()
            await world.clock.advance(TURN_S)
            while not await redis.exists(keys("tenant acme")[1]):
                pass
        assert await second.statuses(3) == [429] * 3


async def test_a_silent_server_holds_nobody_up(tmp_path: Path) -> None:
    """It takes connections and says nothing: each request waits a few ms, and then goes by the gateway's share."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/0"
    chosen = msgspec.structs.replace(SETTINGS, redis_url=url, limits_wait_s=0.005, redis_timeout_s=30.0)
    async with gateway_world(says("hi"), settings=chosen) as world:
        await limit(world, Limits(requests_per_min=3))
        assert sorted(await Door(world.assembly).statuses(4)) == [200] * 3 + [429]
        refused = await Door(world.assembly).post()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1"), "it was not asked what it knows"
        await Door(world.assembly).shows('lorafleet_gateway_limit_waits_total{came="late"} 5.0')
    hanging.close()
    await hanging.wait_closed()


async def test_without_a_server_a_gateway_goes_by_its_own_word() -> None:
    async with gateway_world(says("hi")) as world:
        door = Door(world.assembly)
        answer = await door.post()
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")], "there is no limit yet"
        await door.shows("lorafleet_gateway_limits_fallback 0.0")
        await limit(world, Limits(requests_per_min=2))
        assert sorted(await door.statuses(3)) == [200, 200, 429]
        await door.shows("lorafleet_gateway_limits_fallback 1.0")


def test_a_url_that_names_no_server_is_named() -> None:
    async def start() -> None:
        async with gateway_world(settings=msgspec.structs.replace(SETTINGS, redis_url="http://x")):
            pass

    with pytest.raises(SettingsError, match="LORAFLEET_GATEWAY_REDIS_URL does not fit"):
        asyncio.run(start())


async def told(replica: ScriptedReplica) -> list[object]:
    """Everything that the replica was asked."""
    return [replica.asked.get_nowait() for _ in range(replica.asked.qsize())]
