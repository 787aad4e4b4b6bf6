"""From an announcement to an alias that gateways can route, on the memory bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.registry_world import FakePlacement, FakeReplica, World, eventually, world

POOL = pool_id(BASE.base_model_hash, 8)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def replica(broker: MemoryBroker) -> FakeReplica:
    replica = FakeReplica("replica-a")
    await replica.serve(broker.connect("replica_worker"))
    await FakePlacement(POOL, ("replica-a",)).serve(broker.connect("placement"))
    return replica


@pytest.fixture
async def here(tmp_path: Path, broker: MemoryBroker, replica: FakeReplica) -> AsyncIterator[World]:
    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(tmp_path, connect) as made:
        await made.prepare()
        yield made


async def test_a_post_leads_to_an_alias_that_gateways_see(here: World, broker: MemoryBroker) -> None:
    announced = here.announce(alias="acme/support:prod")
    answer = await here.post(announced)
    assert (answer.status_code, answer.json()["status"]) == (201, "verified")
    adapter = await here.reached("acme-support-1", "active")
    assert [move["state"] for move in adapter["history"]] == ["registered", "verified", "evaluating", "active"]
    bucket = broker.connect("gateway").state(catalog.ALIAS)

    async def told() -> bool:
        return await bucket.get(key_of("acme/support:prod")) is not None

    await eventually(told)
    change = await bucket.get(key_of("acme/support:prod"))
    assert change is not None
    assert change.value is not None
    assert (change.value.adapter_id, change.value.digest) == ("acme-support-1", announced.checksum)
    assert (change.value.pool_id, change.value.base_model_name) == (POOL, "small-base")
