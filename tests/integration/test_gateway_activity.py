"""A gateway tells what customers asked for, by which rules it chose, and lets replays choose otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from shared.bus.port import Ids
from shared.contracts.catalog import GATEWAY_ACTIVITY
from shared.latencies import bucket_of
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.generation import GenerateRequest
from shared.messages.usage import BASE
from tests.support.gateway_world import ADAPTER, BASE_NAME, POOL, SETTINGS, World, body, gateway_world
from tests.support.scripted_replica import Script, ScriptedReplica, says

PATH = "/v1/chat/completions"
AT_ONCE = bucket_of(0.0)

pytestmark = pytest.mark.deadline(30)


def refuses(code: str) -> Script:
    async def script(replica: ScriptedReplica, request: GenerateRequest) -> None:
        await replica.queue(request)
        await replica.refuse(request, code, elsewhere=True)

    return script


@asynccontextmanager
async def told(world: World) -> AsyncIterator[asyncio.Queue[GatewayActivity]]:
    """What placement hears."""
    heard: asyncio.Queue[GatewayActivity] = asyncio.Queue()

    async def hear(activity: GatewayActivity, ids: Ids) -> None:
        heard.put_nowait(activity)

    subscription = await world.broker.connect("placement").subscribe(GATEWAY_ACTIVITY, hear)
    yield heard
    await subscription.close()


async def test_its_activity_is_what_was_streamed() -> None:
    async with gateway_world(says("Good", "day"), says("Good", "day")) as world, told(world) as heard:
        async with world.client() as client:
            for changes in ({}, {"stream": True}, {"model": BASE_NAME}):
                assert (await client.post(PATH, json=body(**changes))).status_code == 200
        await world.clock.advance(1.0)
        activity = await heard.get()
        assert activity.sequence == 1
        assert activity.pools == {
            POOL: PoolActivity(
                requests=3, first_tokens=3, tokens=6,
                adapters={
                    ADAPTER.adapter_id: AdapterActivity(requests=2, finished=2, tokens=4, first_tokens={AT_ONCE: 2}),
                    BASE: AdapterActivity(requests=1, finished=1, tokens=2, first_tokens={AT_ONCE: 1}),
                },
            )
        }  # fmt: skip


async def test_a_request_that_nobody_can_take_counts_as_asked_and_refused() -> None:
    async with gateway_world(refuses("overloaded")) as world, told(world) as heard:
        async with world.client() as client:
            assert (await client.post(PATH, json=body())).status_code == 503
        await world.clock.advance(1.0)
        pool = (await heard.get()).pools[POOL]
        assert (pool.requests, pool.refused, pool.first_tokens, pool.tokens) == (1, 1, 0, 0)


async def test_decisions_are_counted_by_rule_and_sampled_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = msgspec.structs.replace(SETTINGS, route_log_one_in=1)
    async with gateway_world(says("Good"), None, settings=settings) as world, world.client() as client:
        await client.post(PATH, json=body())
        counted = (await client.get("/metrics")).text
        assert f'lorafleet_gateway_route_decisions_total{{pool="{POOL}",rule="first"}} 1.0' in counted
    assert [record.getMessage() for record in caplog.records].count("a request was routed") == 1


async def test_c68_a_stream_and_a_whole_answer_come_from_the_same_owner() -> None:
    async with gateway_world(says("Good"), None, None) as world, world.client() as client:
        for stream in (True, False, True, False):
            assert (await client.post(PATH, json=body(stream=stream))).status_code == 200
        assert all(replica.asked.empty() for replica in world.replicas[1:])


@pytest.mark.parametrize(("allowed", "rule"), [(False, "first"), (True, "round_robin")])
async def test_a_replay_may_choose_its_strategy_where_that_is_allowed(allowed: bool, rule: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, request_strategies=allowed)
    async with gateway_world(says("Good"), says("Good"), settings=settings) as world, world.client() as client:
        client.headers["x-lorafleet-strategy"] = "round_robin"
        assert (await client.post(PATH, json=body())).status_code == 200
        assert f'rule="{rule}"}} 1.0' in (await client.get("/metrics")).text
        client.headers["x-lorafleet-strategy"] = "fastest"
        assert (await client.post(PATH, json=body())).status_code == (400 if allowed else 200)


async def test_a_replica_that_cannot_load_an_adapter_is_left_alone_with_it() -> None:
    async with gateway_world(refuses("adapter_unavailable"), says("Good")) as world, world.client() as client:
        for _ in range(3):
            assert (await client.post(PATH, json=body())).status_code == 200
        counted = (await client.get("/metrics")).text
        assert 'failovers_total{cause="adapter_unavailable"} 1.0' in counted
        assert "lorafleet_gateway_failed_loads_total 1.0" in counted


async def test_where_no_replica_can_load_it_the_client_learns_that_at_once() -> None:
    async with gateway_world(refuses("adapter_unavailable")) as world, world.client() as client:
        first, second = [await client.post(PATH, json=body()) for _ in range(2)]
        assert [first.status_code, second.status_code] == [503, 503]
        assert second.json()["error"]["code"] == "adapter_unavailable"
        assert second.headers["retry-after"] == "2"
        assert "replica-" not in second.json()["error"]["message"]
