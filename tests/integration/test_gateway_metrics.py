"""What Prometheus reads at the gateway: every time and count of a request, and few series whoever asks."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.gateway.io.meters import show_customers
from shared.latencies import ERROR
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from shared.ttft_by_customer import REST, TtftByCustomer, TtftPolicy
from tests.support.gateway_world import ADAPTER, World, body, gateway_world
from tests.support.scripted_replica import PROMPT_TOKENS

PATH = "/v1/chat/completions"

Samples = dict[tuple[str, ...], float]

pytestmark = pytest.mark.deadline(30)


def samples(text: str) -> Samples:
    """By name and the values of the labels."""
    return {
        (sample.name.removeprefix("lorafleet_gateway_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scraped(world: World) -> Samples:
    async with world.client() as client:
        return samples((await client.get("/metrics")).text)


async def test_every_time_of_a_request_is_measured() -> None:
    """First token after 0.2 s, the others 0.1 and 0.3 s after it, the end 0.4 s later."""
    async with gateway_world(None) as world, world.client() as client:
        replica = world.replicas[0]
        asking = asyncio.create_task(client.post(PATH, json=body(stream=True)))
        request = await replica.asked.get()
        await replica.queue(request)
        await replica.accept(request, "ram")
        for pause_s, text in ((0.2, "a"), (0.1, "b"), (0.2, "c")):
            await world.clock.advance(pause_s)
            replica.wall_s = world.clock.wall_s() - 0.03
            await replica.say(request, text)
        await world.clock.advance(0.4)
        await replica.finish(request)
        assert (await asking).status_code == 200
        found = await scraped(world)
    assert found["ttft_seconds_sum", "ram"] == pytest.approx(0.2)
    assert found["ttft_seconds_bucket", "0.1", "ram"] == 0
    assert found["ttft_seconds_bucket", "0.25", "ram"] == 1
    assert (found["inter_token_seconds_count", "ram"], found["inter_token_seconds_sum", "ram"]) == (
        2,
        pytest.approx(0.3),
    )
    assert found["time_per_output_token_seconds_sum", "stop", "ram"] == pytest.approx(0.15)
    assert found["request_seconds_sum", "stop", "ram"] == pytest.approx(0.9)
    assert (found["tokens_total",], found["prompt_tokens_total",]) == (3, PROMPT_TOKENS)
    assert found["adapter_requests_total", "ram"] == 1
    assert (found["frame_lag_seconds_count",], found["customers", "active"]) == (4, 1)
    assert found["frame_lag_seconds_bucket", "0.025"] == 0
    assert found["customer_ttft_p95_seconds", ADAPTER.adapter_id] == pytest.approx(0.2, rel=ERROR)


async def test_refusals_are_counted_by_why_and_a_client_that_leaves_is_none() -> None:
    async with gateway_world(None) as world, world.client() as client:
        replica = world.replicas[0]
        await client.post(PATH, content=b"{")
        asking = asyncio.create_task(client.post(PATH, json=body()))
        request = await replica.asked.get()
        await replica.queue(request)
        await replica.refuse(request, "context_length_exceeded", elsewhere=False)
        assert (await asking).status_code == 400
        leaving = asyncio.create_task(client.post(PATH, json=body()))
        await replica.asked.get()
        leaving.cancel()
        await replica.cancelled.get()
        found = await scraped(world)
    reasons = {key[1]: value for key, value in found.items() if key[0] == "refusals_total"}
    assert reasons == {"invalid_json": 1, "context_length_exceeded": 1}
    assert found["requests_total", "client_left"] == 1


def test_series_stay_few_with_twenty_thousand_adapters() -> None:
    metrics, customers = Metrics("gateway"), TtftByCustomer(TtftPolicy())
    show_customers(metrics, customers, ManualClock())
    for number in range(20_000):
        customers.first_token(f"adapter-{number}", 0.1, 0.0)
    for _ in range(9):
        customers.first_token("adapter-19999", 3.0, 0.0)
    found = samples(metrics.exposition().decode())
    shown = {key[1]: value for key, value in found.items() if key[0] == "customer_ttft_p95_seconds"}
    assert REST in shown
    assert len(shown) <= 61
    assert max(shown, key=lambda name: shown[name]) == "adapter-19999"
    assert (found["customers", "active"], found["customers", "late"]) == (20_000, 1)
