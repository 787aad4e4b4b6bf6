"""Facts: stored, delivered at least once, redelivered after a failure. The same for both buses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.bus.port import BusUnavailable, Ids
from shared.contracts import catalog
from shared.messages.adapters import AdapterRegistered, AdapterVerified
from shared.messages.operations import AskState
from tests.support.bus_samples import registered, sample
from tests.support.bus_worlds import Heard, World, until, world_of


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(request.param, tmp_path) as made:
        yield made


class Registrations(Heard):
    """Remembers adapter ids; the first `failures` calls for each of `bad` raise after having been noted."""

    def __init__(self, *bad: str, failures: int = 1) -> None:
        super().__init__()
        self._left = dict.fromkeys(bad, failures)

    async def take(self, message: AdapterRegistered, ids: Ids) -> None:
        await self(message.adapter_id)
        if self._left.get(message.adapter_id, 0) > 0:
            self._left[message.adapter_id] -= 1
            raise RuntimeError("not this time")


async def test_facts_from_before_the_first_consumer_are_delivered_in_order(world: World) -> None:
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Registrations()
    for name in ("a1", "a2", "a3"):
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name))
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a4"))
    assert await heard.reach(4) == ["a1", "a2", "a3", "a4"]


async def test_who_wants_only_what_is_new_gets_only_that(world: World) -> None:
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Heard()

    async def take(message: AdapterVerified, ids: Ids) -> None:
        await heard(message.adapter_id)

    for name in ("a1", "a2", "a3", "a4"):
        if name == "a3":
            await pipeline.consume(catalog.ADAPTER_VERIFIED, "mine", take, only_new=True)
        fact = msgspec.structs.replace(sample(AdapterVerified), adapter_id=name)
        await registry.publish(catalog.ADAPTER_VERIFIED, fact)
    assert await heard.reach(2) == ["a3", "a4"]


async def test_a_fact_whose_handler_failed_comes_again_and_the_others_do_not_wait(world: World) -> None:
    pipeline, registry, heard = (
        await world.connect("pipeline"),
        await world.connect("registry"),
        Registrations("a1", failures=2),
    )
    for name in ("a1", "a2"):
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name))
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    assert await heard.reach(4) == ["a1", "a2", "a1", "a1"]


async def test_a_repeated_message_id_is_stored_once(world: World) -> None:
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Registrations()
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    for message_id, name in (("m1", "a1"), ("m1", "a1"), ("m2", "a2")):
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name), message_id=message_id)
    assert await heard.reach(2) == ["a1", "a2"]


async def test_those_who_share_a_durable_share_the_facts(world: World) -> None:
    pipeline, heard = await world.connect("pipeline"), Registrations()
    for _ in range(2):
        await (await world.connect("registry")).consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    names = [f"a{n}" for n in range(20)]
    for name in names:
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name))
    assert sorted(await heard.reach(20)) == sorted(names)


async def test_every_durable_gets_every_fact(world: World) -> None:
    registry, heard = await world.connect("registry"), [Heard(), Heard(), Heard()]
    consumers = (("pipeline", "p1"), ("pipeline", "p2"), ("console", "c1"))
    for (service, durable), each in zip(consumers, heard, strict=True):
        await (await world.connect(service)).consume(catalog.ADAPTER_VERIFIED, durable, each)
    fact = sample(AdapterVerified)
    await registry.publish(catalog.ADAPTER_VERIFIED, fact)
    for each in heard:
        assert await each.reach(1) == [(fact, ())]


async def test_one_durable_name_follows_two_channels_separately(world: World) -> None:
    registry, pipeline, verified, retired = (
        await world.connect("registry"),
        await world.connect("pipeline"),
        Heard(),
        Heard(),
    )
    await pipeline.consume(catalog.ADAPTER_VERIFIED, "p1", verified)
    await pipeline.consume(catalog.ADAPTER_RETIRED, "p1", retired)
    for channel in (catalog.ADAPTER_RETIRED, catalog.ADAPTER_VERIFIED):
        await registry.publish(channel, sample(channel.message))
    assert len(await verified.reach(1)) == len(await retired.reach(1)) == 1


async def test_a_durable_goes_on_where_it_was(world: World) -> None:
    pipeline, registry, first, second = (
        await world.connect("pipeline"),
        await world.connect("registry"),
        Registrations(),
        Registrations(),
    )
    consuming = await registry.consume(catalog.ADAPTER_REGISTERED, "registry", first.take)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a1"))
    await first.reach(1)
    await consuming.close()
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a2"))
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", second.take)
    assert await second.reach(1) == ["a2"]
    assert first.calls == ["a1"]


async def test_a_fact_in_the_hands_of_one_who_leaves_goes_to_another_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.bus.nats_events.ACK_WAIT_S", 3600.0)
    pipeline, leaving, heard, taken = (
        await world.connect("pipeline"),
        await world.connect("registry"),
        Registrations(),
        Heard(),
    )

    async def hang(message: Any, ids: Ids) -> None:
        await taken(message.adapter_id)
        await asyncio.Future()

    consuming = await leaving.consume(catalog.ADAPTER_REGISTERED, "registry", hang)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a1"))
    await taken.reach(1)
    await consuming.close()
    await (await world.connect("registry")).consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    assert await heard.reach(1) == ["a1"]


async def test_an_undecodable_fact_is_dropped_for_good_and_the_next_one_handled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Registrations()
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    await pipeline.publish(replace(catalog.ADAPTER_REGISTERED, message=AskState), AskState())
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a2"))
    assert await heard.reach(1) == ["a2"]
    assert caplog.text.count("not a message of channel adapter.registered") == 1


async def test_a_consumer_that_asks_sees_an_undecodable_fact_until_it_has_dealt_with_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Registrations()
    shown, failures = Heard(), iter([RuntimeError("not this time")])

    async def look(payload: bytes, reason: str) -> None:
        await shown(payload, reason)
        for error in failures:
            raise error

    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take, on_undecodable=look)
    await pipeline.publish(replace(catalog.ADAPTER_REGISTERED, message=AskState), AskState())
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a2"))
    assert await heard.reach(1) == ["a2"]
    assert await shown.reach(2) == [(b"{}", "Object missing required field `adapter_id`")] * 2
    assert "dropped" not in caplog.text
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a3"))
    assert await heard.reach(2) == ["a2", "a3"]
    assert len(shown.calls) == 2


async def test_a_consumer_may_close_itself_from_its_handler(world: World) -> None:
    pipeline, registry, heard, rest = (
        await world.connect("pipeline"),
        await world.connect("registry"),
        Heard(),
        Registrations(),
    )

    async def close_after_first(message: AdapterRegistered, ids: Ids) -> None:
        await consuming.close()
        await asyncio.sleep(0)
        await heard(message.adapter_id)

    consuming = await registry.consume(catalog.ADAPTER_REGISTERED, "registry", close_after_first)
    for name in ("a1", "a2"):
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name))
    assert await heard.reach(1) == ["a1"]
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", rest.take)
    assert await rest.reach(1) == ["a2"]


async def test_consumers_survive_the_loss_of_the_bus_and_nothing_stored_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledgement or a delivery that was under way when the server died is repeated ACK_WAIT_S later."""
    monkeypatch.setattr("shared.bus.nats_events.ACK_WAIT_S", 0.5)
    pipeline, registry, heard = await world.connect("pipeline"), await world.connect("registry"), Registrations()
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard.take)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a1"))
    await heard.reach(1)
    for name in ("a2", "a3"):
        await world.lose()
        with pytest.raises(BusUnavailable):
            await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name), message_id=name)
        with pytest.raises(BusUnavailable):
            await registry.consume(catalog.ADAPTER_EFFECT_MISMATCH, "registry", heard)
        await world.find()
        await pipeline.publish(catalog.ADAPTER_REGISTERED, registered(name), message_id=name)
    await until(lambda: "a2" in heard.calls and "a3" in heard.calls)
    assert set(heard.calls) == {"a1", "a2", "a3"}


async def test_only_those_who_may_publish_and_consume(world: World) -> None:
    worker, gateway = await world.connect("replica_worker"), await world.connect("gateway")
    with pytest.raises(PermissionError, match="replica_worker may not write"):
        await worker.publish(catalog.ADAPTER_REGISTERED, registered())
    with pytest.raises(PermissionError, match="gateway may not read"):
        await gateway.consume(catalog.ADAPTER_REGISTERED, "gateway", Heard())
