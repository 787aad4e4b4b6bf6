"""An operator pins an adapter: placement is told, whatever its aliases say, until it is unpinned or retired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from services.registry.deployment.wanted import let_go
from services.registry.io import outbox_rows
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.desired import AdapterRecord
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.registry_errors import error_of
from tests.support.registry_watch import value_is
from tests.support.registry_world import FakePlacement, FakeReplica, World


@pytest.fixture
async def placement(alone: World, broker: MemoryBroker) -> Bus:
    """What placement hears; replicas evaluate what is registered."""
    bus = broker.connect("placement")
    await FakePlacement(pool_id(BASE.base_model_hash, 8), ("r1",)).serve(bus)
    await FakeReplica("r1").serve(broker.connect("replica_worker"))
    return bus


async def change(alone: World, adapter_id: str, pinned: Any) -> httpx.Response:
    return await alone.admin.patch(f"/internal/adapters/{adapter_id}", json={"pinned": pinned})


async def told(placement: Bus, right: Callable[[AdapterRecord], bool]) -> None:
    await value_is(placement, catalog.ADAPTER, key_of("v1"), lambda record: record is not None and right(record))


async def test_placement_is_told_and_told_again_when_it_is_over(alone: World, placement: Bus) -> None:
    await alone.activated("v1", alias="acme/x")
    await told(placement, lambda record: not record.pinned)
    answer = await change(alone, "v1", True)
    assert (answer.status_code, answer.json()["pinned"]) == (200, True)
    await told(placement, lambda record: record.pinned)
    shown = (await alone.admin.get("/internal/adapters/v1")).json()
    assert (shown["pinned"], shown["status"], len(shown["history"])) == (True, "active", 4)
    assert (await change(alone, "v1", True)).json()["pinned"]
    assert not (await change(alone, "v1", False)).json()["pinned"]
    await told(placement, lambda record: not record.pinned and record.wanted)


async def test_it_stays_while_no_alias_names_it(alone: World, placement: Bus) -> None:
    await alone.activated("v1")
    await change(alone, "v1", True)
    async with alone.registry.database.write() as connection:
        await outbox_rows.append(connection, await let_go(connection, ["v1"]), 1.0)
    await told(placement, lambda record: record.pinned and record.wanted)
    await change(alone, "v1", False)
    await told(placement, lambda record: not record.pinned and not record.wanted)


async def test_one_that_is_still_read_can_be_pinned_and_one_that_ended_cannot(alone: World, placement: Bus) -> None:
    await alone.activated("v1")
    await change(alone, "v1", True)
    assert (await alone.admin.post("/internal/adapters/v1/retire")).json()["pinned"] is False
    refused = error_of(await change(alone, "v1", True), 409)
    assert (refused["code"], refused["message"]) == (
        "adapter_not_active",
        "Adapter v1 is retired; no replica holds it.",
    )
    assert (await change(alone, "v1", False)).status_code == 200
    assert error_of(await change(alone, "none", True), 404)["code"] == "adapter_unknown"
    assert error_of(await change(alone, "v1", "yes"), 422)["code"] == "invalid_body"


async def test_a_record_that_lost_the_pin_is_repaired(alone: World, placement: Bus, broker: MemoryBroker) -> None:
    await alone.activated("v1")
    await change(alone, "v1", True)
    await told(placement, lambda record: record.pinned)
    await broker.connect("registry").state(catalog.ADAPTER).delete(key_of("v1"))
    await alone.registry.relay.ask_reconcile()
    await told(placement, lambda record: record.pinned)
