"""The server's permissions: everything that the catalog says works under its own user, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.bus.port import Bus, Ids
from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, FanOut, Kind, Service
from shared.contracts.permissions import may_read, may_write
from shared.contracts.streams import bucket_stream, buckets, durables, event_streams, key_prefix
from tests.support.bus_samples import sample
from tests.support.bus_worlds import DEADLINE_S, Heard, NatsWorld
from tests.support.nats_server import NatsServer, nats_server
from tests.support.nats_wire import nats_wire

ALL_OF = pytest.mark.parametrize("service", list(Service), ids=lambda service: service.value)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path) as running:
        yield running


def ids_for(channel: Channel[Any, Any]) -> Ids:
    return tuple(f"{param}-1" for param in channel.params)


async def exchange(channel: Channel[Any, Any], writer: Bus, reader: Bus, pooled: bool) -> None:
    """One message from writer to reader, the way its kind travels; fails if it does not arrive."""
    message, ids, heard = sample(channel.message), ids_for(channel), Heard()
    if channel.kind is Kind.EVENT:
        consuming = await reader.consume(channel, channel.readers[0].service.value if pooled else "one", heard)
        await writer.publish(channel, message)
        await heard.reach(1)
        await consuming.close()
    elif channel.kind is Kind.STATE:
        await writer.state(channel).put(message, *ids)
        watching = await reader.state(channel).watch(heard)
        assert await reader.state(channel).get(*ids) is not None
        assert len(await reader.state(channel).entries()) == 1
        await writer.state(channel).delete(*ids)
        await heard.reach(2)
        await watching.close()
    elif channel.kind is Kind.RPC and channel.reply is not None:
        await _question(channel, message, ids, writer, reader)
    else:
        subscription = await reader.subscribe(channel, heard, *ids[:1])
        await writer.publish(channel, message, *ids)
        await heard.reach(1)
        await subscription.close()


async def _question(channel: Channel[Any, Any], message: Any, ids: Ids, asker: Bus, server: Bus) -> None:
    async def answer(asked: Any, found: Ids) -> Any:
        return sample(channel.reply)

    serving = await server.serve(channel, answer, *ids)
    assert await asker.ask(channel, message, *ids, timeout_s=DEADLINE_S) == sample(channel.reply)
    await serving.close()


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value)
async def test_every_channel_works_between_each_of_its_writers_and_readers(nats_world: NatsWorld, kind: Kind) -> None:
    buses = {service: await nats_world.connect(service.value) for service in Service}
    for channel in (channel for channel in CHANNELS if channel.kind is kind):
        for writer in channel.writers:
            for reader in channel.readers:
                pooled = reader.fan_out is FanOut.POOL
                async with asyncio.timeout(DEADLINE_S):
                    await exchange(channel, buses[writer], buses[reader.service], pooled)


def writing_subject(channel: Channel[Any, Any]) -> str:
    ids = ids_for(channel)
    return key_prefix(channel) + ".".join(ids) if channel.kind is Kind.STATE else channel.subject(*ids)


@ALL_OF
async def test_the_server_refuses_every_channel_that_a_service_does_not_write(
    server: NatsServer, service: Service
) -> None:
    foreign = {writing_subject(channel) for channel in CHANNELS if not may_write(service, channel)}
    assert foreign
    async with nats_wire(server.options(service.value)) as wire:
        assert await wire.refused_to_publish(sorted(foreign)) == foreign


@ALL_OF
async def test_the_server_refuses_every_channel_that_a_service_does_not_read(
    server: NatsServer, service: Service
) -> None:
    foreign = {channel.subject(*ids_for(channel)) for channel in CHANNELS if not may_read(service, channel)}
    foreign |= {key_prefix(channel) + ">" for channel in CHANNELS if channel.kind is Kind.STATE}
    async with nats_wire(server.options(service.value)) as wire:
        assert await wire.refused_to_subscribe(sorted(foreign)) == foreign


@ALL_OF
async def test_nobody_listens_to_everything_or_to_the_answers_of_others(server: NatsServer, service: Service) -> None:
    inboxes = {f"_INBOX_{other.value}.>" for other in (*Service,) if other is not service}
    subjects = {">", "lf.>", "lf.v1.>", "lf.v1.reply.>", "_INBOX.>", "_INBOX_*.>", "$JS.>", "$SYS.>", *inboxes}
    async with nats_wire(server.options(service.value)) as wire:
        assert await wire.refused_to_subscribe(sorted(subjects)) == subjects


@ALL_OF
async def test_nobody_reads_foreign_state_or_takes_foreign_facts(server: NatsServer, service: Service) -> None:
    foreign_state = [channel for channel in CHANNELS if channel.kind is Kind.STATE and not may_read(service, channel)]
    foreign_facts = [channel for channel in CHANNELS if channel.kind is Kind.EVENT and not may_read(service, channel)]
    others = [durable for durable in durables() if durable.service is not service]
    subjects = {
        f"$JS.API.CONSUMER.{verb}"
        for spec in event_streams()
        for verb in (f"CREATE.{spec.name}.any", f"CREATE.{spec.name}", f"DURABLE.CREATE.{spec.name}.any")
    }
    subjects |= {f"$JS.API.CONSUMER.CREATE.{channel.stream}.any.{channel.wildcard}" for channel in foreign_facts}
    for channel in foreign_state:
        stream, key = bucket_stream(channel), writing_subject(channel)
        subjects |= {f"$JS.API.DIRECT.GET.{stream}.{key}", f"$JS.API.CONSUMER.CREATE.{stream}.any.{key}"}
        subjects |= {f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.CONSUMER.CREATE.{stream}.any"}
    for durable in others:
        subjects |= {
            f"$JS.API.CONSUMER.CREATE.{durable.stream}.{durable.name}.{durable.subject}",
            f"$JS.API.CONSUMER.INFO.{durable.stream}.{durable.name}",
            f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}",
            f"$JS.ACK.{durable.stream}.{durable.name}.1.1.1.1.0",
        }
    async with nats_wire(server.options(service.value)) as wire:
        assert await wire.refused_to_publish(sorted(subjects)) == subjects


@ALL_OF
async def test_no_service_may_change_what_the_bus_keeps(server: NatsServer, service: Service) -> None:
    streams = [spec.name for spec in (*event_streams(), *buckets())]
    verbs = ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "INFO")
    subjects = {f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs for stream in streams}
    subjects |= {f"$JS.API.CONSUMER.DELETE.{durable.stream}.{durable.name}" for durable in durables()}
    async with nats_wire(server.options(service.value)) as wire:
        assert await wire.refused_to_publish(sorted(subjects)) == subjects


async def test_an_answer_may_be_given_only_by_the_one_who_was_asked(server: NatsServer) -> None:
    inboxes = {f"_INBOX_{asker}.x.y" for asker in ("gateway", "registry", "placement")}
    async with nats_wire(server.options("replica_worker")) as wire:
        assert await wire.refused_to_publish(sorted(inboxes)) == inboxes
