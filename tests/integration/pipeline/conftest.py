"""A registry at an address, on a real bus, with replicas that answer as a test wants them to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.bus_worlds import NatsWorld, world_of
from tests.support.registry_place import Place
from tests.support.registry_served import served
from tests.support.registry_world import FakePlacement, FakeReplica, World, world


@pytest.fixture
async def buses(tmp_path: Path) -> AsyncIterator[NatsWorld]:
    folder = tmp_path / "nats"
    folder.mkdir()
    async with world_of("nats", folder) as made:
        assert isinstance(made, NatsWorld)
        yield made


@pytest.fixture
async def replica(buses: NatsWorld) -> FakeReplica:
    replica = FakeReplica("replica-a")
    await replica.serve(await buses.connect("replica_worker"))
    await FakePlacement(pool_id(BASE.base_model_hash, 8), ("replica-a",)).serve(await buses.connect("placement"))
    return replica


@pytest.fixture
async def here(tmp_path: Path, buses: NatsWorld, replica: FakeReplica) -> AsyncIterator[World]:
    async with world(tmp_path, buses.connect) as made:
        await made.prepare()
        yield made


@pytest.fixture
async def admin_url(here: World) -> AsyncIterator[str]:
    async with served(here) as url:
        yield url


@pytest.fixture
def nats_url(buses: NatsWorld) -> str:
    login = buses.server.options("pipeline")
    return f"nats://{login.user}:{quote(login.password, safe='')}@{login.url.partition('://')[2]}"


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[World]:
    """A registry whose bus is in memory, for what concerns files alone."""
    async with Place(tmp_path, f"sqlite+aiosqlite:///{tmp_path}/registry.db").registry() as made:
        await made.prepare()
        yield made


@pytest.fixture
async def alone_url(alone: World) -> AsyncIterator[str]:
    async with served(alone) as url:
        yield url
