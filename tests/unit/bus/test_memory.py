"""How the bus in memory is broken on purpose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bus.memory import MemoryBroker
from shared.bus.port import BusUnavailable, DeadlineExceeded, Ids, NoResponders
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.messages.operations import LoadAdapter
from tests.support.bus_samples import gateway_report, registered
from tests.support.bus_worlds import Heard

LOAD = LoadAdapter(adapter_id="a1", digest="d1")


async def test_only_services_connect() -> None:
    with pytest.raises(ValueError, match="worker"):
        MemoryBroker().connect("worker")


async def test_live_messages_pass_by_the_one_who_is_cut_off() -> None:
    broker, heard = MemoryBroker(), [Heard(), Heard()]
    gateway, cut_off, other = (
        broker.connect("gateway"),
        broker.connect("replica_worker"),
        broker.connect("replica_worker"),
    )
    for bus, each in zip((cut_off, other), heard, strict=True):
        await bus.subscribe(catalog.GATEWAY_REPORT, each)
    broker.disconnect(cut_off)
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(1), "g1")
    await heard[1].reach(1)
    with pytest.raises(BusUnavailable):
        await cut_off.subscribe(catalog.GATEWAY_REPORT, heard[0])
    broker.reconnect(cut_off)
    await gateway.publish(catalog.GATEWAY_REPORT, gateway_report(2), "g1")
    assert [message.sequence for message, _ in await heard[0].reach(1)] == [2]


async def test_a_watch_that_was_cut_off_is_told_what_changed_and_what_vanished() -> None:
    broker, heard = MemoryBroker(), Heard()
    state, gateway = broker.connect("registry").state(catalog.TENANT), broker.connect("gateway")
    for name in ("t1", "t2"):
        await state.put(TenantRecord(tenant_id=name), name)
    await gateway.state(catalog.TENANT).watch(heard)
    broker.disconnect(gateway)
    await state.delete("t1")
    await state.put(TenantRecord(tenant_id="t2", weight=5.0), "t2")
    broker.reconnect(gateway)
    changes = (await heard.reach(4))[2:]
    assert [(change.ids, change.value) for change in changes] == [
        (("t1",), None),
        (("t2",), TenantRecord(tenant_id="t2", weight=5.0)),
    ]


async def test_an_answer_from_one_who_is_cut_off_does_not_arrive() -> None:
    broker, asked = MemoryBroker(), asyncio.Event()
    registry, worker = broker.connect("registry"), broker.connect("replica_worker")

    async def answer(message: LoadAdapter, ids: Ids) -> Any:
        broker.disconnect(worker)
        asked.set()

    await worker.serve(catalog.LOAD, answer, "r1")
    with pytest.raises(DeadlineExceeded):
        await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=0.05)
    assert asked.is_set()
    with pytest.raises(NoResponders):
        await registry.ask(catalog.LOAD, LOAD, "r1", timeout_s=0.05)


async def test_facts_wait_for_a_consumer_that_is_cut_off() -> None:
    broker, heard = MemoryBroker(), Heard()
    pipeline, registry = broker.connect("pipeline"), broker.connect("registry")
    await registry.consume(catalog.ADAPTER_REGISTERED, "registry", heard)
    broker.disconnect(registry)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, registered("a1"))
    broker.reconnect(registry)
    assert (await heard.reach(1))[0][0].adapter_id == "a1"
    await registry.close()
