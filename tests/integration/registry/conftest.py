"""Registries to test: on both buses with placement and replicas, alone, and one after another in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.bus_worlds import World as BusWorld
from tests.support.bus_worlds import world_of
from tests.support.registry_place import Place
from tests.support.registry_world import FakePlacement, FakeReplica, World, world

POOL = pool_id(BASE.base_model_hash, 8)


@pytest.fixture(params=["memory", "nats"])
async def buses(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BusWorld]:
    folder = tmp_path / "nats"
    folder.mkdir()
    async with world_of(request.param, folder) as made:
        yield made


@pytest.fixture
async def placement(buses: BusWorld) -> FakePlacement:
    placement = FakePlacement(POOL, ("replica-a", "replica-b"), owners=("replica-b", "replica-a"))
    await placement.serve(await buses.connect("placement"))
    return placement


@pytest.fixture
async def replicas(buses: BusWorld, placement: FakePlacement) -> tuple[FakeReplica, FakeReplica]:
    both = FakeReplica("replica-a"), FakeReplica("replica-b")
    for replica in both:
        await replica.serve(await buses.connect("replica_worker"))
    return both


@pytest.fixture
async def here(tmp_path: Path, buses: BusWorld, replicas: tuple[FakeReplica, FakeReplica]) -> AsyncIterator[World]:
    async with world(tmp_path, buses.connect) as made:
        await made.prepare()
        yield made


@pytest.fixture
async def gateway(buses: BusWorld) -> Bus:
    return await buses.connect("gateway")


@pytest.fixture
async def pipeline(buses: BusWorld) -> Bus:
    return await buses.connect("pipeline")


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def alone(tmp_path: Path, broker: MemoryBroker) -> AsyncIterator[World]:
    """Nobody else is on the bus but who a test puts there."""

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(tmp_path, connect, ask_timeout_s=0.2, largest_file_bytes=1 << 20) as made:
        await made.prepare()
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
