"""Pipelines and consoles that use the ordinary NATS client: what works, and what the server keeps from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from shared.bus.nats import connect
from shared.contracts import catalog
from shared.contracts.channel import PREFIX, Kind, Stream
from shared.contracts.codec import decode, encode
from shared.contracts.permissions import inbox_prefix
from shared.messages.adapters import AdapterRejected
from tests.support.bus_samples import registered, sample
from tests.support.bus_worlds import DEADLINE_S, Heard
from tests.support.nats_server import NatsServer, nats_server

BOTH = pytest.mark.parametrize("user", ["pipeline", "console"])
REJECTED = catalog.ADAPTER_REJECTED.wildcard
EVENTS = Stream.EVENTS.value
NOT_ALLOWED_S = 0.5
"""The server answers a forbidden question with silence and a line for the client's error callback."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path) as running:
        yield running


@asynccontextmanager
async def plain(
    server: NatsServer, user: str, refusals: list[str] | None = None, prefix: str = ""
) -> AsyncIterator[Client]:
    options, inbox = server.options(user), prefix or inbox_prefix(user)

    async def note(error: Exception) -> None:
        if refusals is not None:
            refusals.append(str(error))

    client = await nats.connect(
        options.url, user=user, password=options.password, inbox_prefix=inbox.encode(), error_cb=note
    )
    try:
        yield client
    finally:
        await client.close()


async def tell_rejected(server: NatsServer) -> AdapterRejected:
    registry = await connect(server.options("registry"))
    fact: AdapterRejected = sample(AdapterRejected)
    await registry.publish(catalog.ADAPTER_REJECTED, fact)
    await registry.close()
    return fact


async def pulled(client: Client, **changes: Any) -> AdapterRejected:
    pulling = await client.jetstream().pull_subscribe(REJECTED, durable="mine", stream=EVENTS, **changes)
    [message] = await pulling.fetch(1, timeout=DEADLINE_S)
    await message.ack_sync()
    return decode(catalog.ADAPTER_REJECTED, message.data)


@BOTH
async def test_a_durable_pull_goes_on_where_it_was(server: NatsServer, user: str) -> None:
    first = await tell_rejected(server)
    async with plain(server, user) as client:
        assert await pulled(client) == first
    second = await tell_rejected(server)
    async with plain(server, user) as client:
        assert await pulled(client) == second
        info = await client.jetstream().consumer_info(EVENTS, "mine")
        assert (info.delivered.stream_seq, info.num_pending) == (2, 0)


@BOTH
async def test_a_durable_push_under_a_name_goes_on_where_it_was(server: NatsServer, user: str) -> None:
    for _ in range(2):
        fact, heard = await tell_rejected(server), Heard()
        async with plain(server, user) as client:
            config = ConsumerConfig(name="mine")
            await client.jetstream().subscribe(REJECTED, durable="mine", stream=EVENTS, config=config, cb=heard)
            [message] = await heard.reach(1)
            assert decode(catalog.ADAPTER_REJECTED, message.data) == fact


async def test_a_pipeline_is_told_that_its_event_is_stored(server: NatsServer) -> None:
    async with plain(server, "pipeline") as client:
        payload = encode(catalog.ADAPTER_REGISTERED, registered())
        stored = await client.jetstream().publish(catalog.ADAPTER_REGISTERED.wildcard, payload)
        assert (stored.stream, stored.seq) == (EVENTS, 1)


async def test_without_its_inbox_prefix_a_pipeline_hears_nothing_though_its_event_is_stored(server: NatsServer) -> None:
    payload, refusals = encode(catalog.ADAPTER_REGISTERED, registered()), list[str]()
    async with plain(server, "pipeline", refusals, prefix="_INBOX") as client:
        with pytest.raises(asyncio.TimeoutError):
            await client.jetstream(timeout=NOT_ALLOWED_S).publish(catalog.ADAPTER_REGISTERED.wildcard, payload)
    assert [refusal for refusal in refusals if "subscription to" in refusal.lower()]
    async with plain(server, "pipeline") as client:
        assert (await client.jetstream().publish(catalog.ADAPTER_REGISTERED.wildcard, payload)).seq == 2


async def test_a_durable_with_a_threshold_is_the_pipeline_s_to_ask_for(server: NatsServer) -> None:
    await tell_rejected(server)
    async with plain(server, "pipeline") as client:
        await pulled(client, config=ConsumerConfig(inactive_threshold=3600.0))
        info = await client.jetstream().consumer_info(EVENTS, "mine")
        assert info.config.inactive_threshold == 3600.0


@BOTH
async def test_a_stream_that_is_not_named_is_looked_for_in_vain(server: NatsServer, user: str) -> None:
    refusals: list[str] = []
    async with plain(server, user, refusals) as client:
        with pytest.raises(asyncio.TimeoutError):
            await client.jetstream(timeout=NOT_ALLOWED_S).pull_subscribe(REJECTED, durable="mine")
    assert [refusal for refusal in refusals if "stream.names" in refusal.lower()]


@BOTH
async def test_a_consumer_does_not_read_what_its_subject_does_not_name(server: NatsServer, user: str) -> None:
    """The filter in the body of the question is the one that counts; it must be the subject's."""
    wide: tuple[dict[str, Any], ...] = (
        {"filter_subject": catalog.ADAPTER_REGISTERED.wildcard},
        {"filter_subject": f"{PREFIX}.{Kind.EVENT.value}.>"},
        {},
        {"filter_subjects": [REJECTED, catalog.ADAPTER_REGISTERED.wildcard]},
        {"filter_subject": REJECTED, "filter_subjects": [catalog.ADAPTER_REGISTERED.wildcard]},
    )
    async with plain(server, user) as client:
        for filters in wide:
            body = {"stream_name": EVENTS, "config": {"name": "mine", "ack_policy": "none", **filters}}
            subject = f"$JS.API.CONSUMER.CREATE.{EVENTS}.mine.{REJECTED}"
            answer = await client.request(subject, json.dumps(body).encode(), timeout=DEADLINE_S)
            assert json.loads(answer.data)["error"]["code"] == 400, filters


@BOTH
async def test_the_older_way_to_a_durable_names_no_subject_and_is_refused(server: NatsServer, user: str) -> None:
    refusals: list[str] = []
    async with plain(server, user, refusals) as client:
        js = client.jetstream(timeout=NOT_ALLOWED_S)
        with pytest.raises(asyncio.TimeoutError):
            await js.subscribe(REJECTED, durable="mine", stream=EVENTS)
    assert [refusal for refusal in refusals if "consumer.durable.create" in refusal.lower()]
