"""Limits over gateways of one fleet, with a real Valkey: one limit for all, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import RateLimitError
from redis.asyncio import Redis

from services.gateway.__main__ import Assembly, assemble
from services.gateway.core.allowance import Ask, Grant, LeasePolicy, PlacesAsk, WindowAsk
from services.gateway.io.limits_redis import LedgerAway, RedisLedger, keys
from services.gateway.limits import TURN_S
from services.gateway.settings import Settings
from shared.contracts.catalog import API_KEY, TENANT
from shared.messages.desired import ApiKeyRecord, Limits, TenantRecord
from shared.messages.identity import key_of
from shared.runtime.settings import SettingsError
from tests.support.gateway_world import KEY, SETTINGS, World, body, gateway_world
from tests.support.paper_ledger import PaperLedger
from tests.support.scripted_replica import PROMPT_TOKENS, ScriptedReplica, says
from tests.support.valkey_server import ValkeyServer, valkey_server

PATH = "/v1/chat/completions"
Within = Callable[[float], AbstractAsyncContextManager[None]]


@pytest.fixture(autouse=True)
async def deadline(within: Within) -> AsyncIterator[None]:
    async with within(60):
        yield


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    async with valkey_server(tmp_path) as server:
        yield server


def using(url: str) -> Settings:
    """Patient: on a busy machine an answer may take longer than a request should wait for it."""
    return msgspec.structs.replace(SETTINGS, redis_url=url, limits_wait_s=20.0, redis_timeout_s=10.0)


class Door:
    """One gateway, as a customer sees it."""

    def __init__(self, assembly: Assembly) -> None:
        self._url = f"http://127.0.0.1:{assembly.server.port}"

    async def post(self, key: str = KEY, headers: dict[str, str] | None = None, **changes: object) -> httpx.Response:
        authorized = {"authorization": f"Bearer {key}", **(headers or {})}
        async with httpx.AsyncClient(base_url=self._url, headers=authorized, timeout=30.0) as client:
            return await client.post(PATH, json=body(**changes))

    async def statuses(self, count: int, **changes: object) -> list[int]:
        return [answer.status_code for answer in await asyncio.gather(*(self.post(**changes) for _ in range(count)))]

    async def shows(self, metric: str) -> None:
        """Returns once this line is among the metrics."""
        async with httpx.AsyncClient(base_url=self._url) as client:
            while metric not in (await client.get("/metrics")).text.splitlines():
                pass


@asynccontextmanager
async def two_gateways(world: World, chosen: Settings) -> AsyncIterator[tuple[Door, Door]]:
    """The world's own and a second one, which have heard of each other."""
    bus = world.broker.connect("gateway")
    second = assemble(msgspec.structs.replace(chosen, gateway_id="gateway-1"), bus, world.clock)
    for part in second.parts:
        await part.start()
    await second.following.full.wait()
    await world.replicas[0].report()
    await world.clock.advance(1.0)
    await world.clock.advance(TURN_S)
    try:
        yield Door(world.assembly), Door(second)
    finally:
        for part in reversed(second.parts):
            await part.stop()
        await bus.close()


async def limit(world: World, limits: Limits, of_key: Limits | None = None) -> None:
    """Returns when the gateways of this world have heard of it, as all are told in one go."""
    registry = world.broker.connect("registry")
    await registry.state(TENANT).put(TenantRecord(tenant_id="acme", limits=limits), "acme")
    if of_key is not None:
        record = ApiKeyRecord(key_id="k1", tenant_id="acme", may_call_base=True, limits=of_key)
        await registry.state(API_KEY).put(record, key_of(KEY))
    await world.clock.advance(0.0)


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


# -- the script ----------------------------------------------------------------------------------------

counts = st.integers(0, 40)
windows = st.none() | st.builds(
    WindowAsk, limit=st.integers(1, 60), want=counts, least=st.integers(0, 5),
    add=st.dictionaries(st.integers(-70, 3), st.integers(-3, 9), max_size=4),
)  # fmt: skip
places = st.none() | st.builds(PlacesAsk, limit=st.integers(1, 9), used=st.integers(0, 5), want=st.integers(0, 12))
dialogues = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.sampled_from("gh"), windows, windows, places), min_size=1, max_size=25
)


async def test_the_script_does_what_the_paper_says(valkey: ValkeyServer) -> None:
    ledger = RedisLedger(valkey.url, 10.0)
    [met] = await ledger.ask([Ask(subject="", gateway="g", epoch="")])
    dialogue = iter(range(10_000))
    loop = asyncio.get_running_loop()

    async def answers(asks: Sequence[Ask]) -> list[Grant]:
        return await ledger.ask(asks)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(said=dialogues)
    def compare(said: list[tuple[float, str, WindowAsk | None, WindowAsk | None, PlacesAsk | None]]) -> None:
        paper, subject, now_s = PaperLedger(met.epoch), f"tenant t{next(dialogue)}", 2_000_000.0
        asks = []
        for passes_s, gateway, requests, tokens, streams in said:
            now_s += passes_s
            asks.append(
                Ask(
                    subject=subject,
                    gateway=gateway,
                    epoch=met.epoch,
                    places_ms=5_000,
                    now_ms=int(now_s * 1000),
                    requests=shifted(requests, int(now_s)),
                    tokens=shifted(tokens, int(now_s)),
                    streams=streams,
                )
            )
        real = asyncio.run_coroutine_threadsafe(answers(asks), loop).result()
        assert real == [paper.answer(ask) for ask in asks]

    await asyncio.to_thread(compare)
    await ledger.close()


def shifted(ask: WindowAsk | None, slot: int) -> WindowAsk | None:
    """Its corrections are of slots around this one."""
    if ask is None:
        return None
    return msgspec.structs.replace(ask, add={slot + at: count for at, count in ask.add.items()})


ASKERS = 10
"""At each ledger."""


async def granted(ledgers: Sequence[RedisLedger], epoch: str) -> int:
    """How much of a limit of 20 they get who all ask for 5 at once."""
    want = WindowAsk(limit=20, want=5, least=5)
    ask = Ask(subject="tenant acme", gateway="g", epoch=epoch, places_ms=5_000, requests=want)
    answers = await asyncio.gather(*(ledger.ask([ask]) for ledger in ledgers for _ in range(ASKERS)))
    return sum(answer.requests.granted for [answer] in answers if answer.requests is not None)


class Careless(RedisLedger):
    """Looks, and writes once all have looked."""

    def __init__(self, url: str, all_have_looked: asyncio.Barrier) -> None:
        super().__init__(url, 10.0)
        self._own = Redis.from_url(url)
        self._all_have_looked = all_have_looked

    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        of_requests, want = keys(asks[0].subject)[1], asks[0].requests
        if want is None:
            return await super().ask(asks)
        used = sum(map(int, await self._own.hvals(of_requests)))
        room = max(0, min(want.want, want.limit - used))
        await self._all_have_looked.wait()
        await self._own.hincrby(of_requests, "1", room)
        paper = PaperLedger(asks[0].epoch)
        answer = paper.answer(
            msgspec.structs.replace(asks[0], now_ms=0, requests=WindowAsk(limit=room, want=room, least=0))
        )
        return [answer]

    async def close(self) -> None:
        await self._own.aclose()
        await super().close()


@pytest.mark.parametrize("kind", ["atomic", "careless"])
async def test_many_at_once_get_no_more_than_there_is(valkey: ValkeyServer, kind: str) -> None:
    """Also shows that the check can fail: who looks first and writes then, hands out too much."""
    all_have_looked = asyncio.Barrier(2 * ASKERS)
    async with AsyncExitStack() as open_ones:
        ledgers = [
            RedisLedger(valkey.url, 10.0) if kind == "atomic" else Careless(valkey.url, all_have_looked)
            for _ in range(2)
        ]
        for ledger in ledgers:
            open_ones.push_async_callback(ledger.close)
        [met] = await ledgers[0].ask([Ask(subject="", gateway="g", epoch="")])
        total = await granted(ledgers, met.epoch)
    assert total == (20 if kind == "atomic" else 2 * ASKERS * 5)


async def test_what_cannot_be_asked_is_said(tmp_path: Path) -> None:
    ledger = RedisLedger("redis://127.0.0.1:1/0", 1.0)
    with pytest.raises(LedgerAway, match="connecting to"):
        await ledger.ask([Ask(subject="", gateway="g", epoch="")])
    await ledger.close()


async def complete(replica: ScriptedReplica, request: object) -> None:
    await replica.queue(request)  # type: ignore[arg-type]
    await replica.accept(request)  # type: ignore[arg-type]
    await replica.finish(request, "hi")  # type: ignore[arg-type]


async def told(replica: ScriptedReplica) -> list[object]:
    """Everything that the replica was asked."""
    return [replica.asked.get_nowait() for _ in range(replica.asked.qsize())]
