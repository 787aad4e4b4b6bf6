"""Registries to test: on both buses with placement and replicas, alone, and one after another in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from loadtest.registry_statements import Statements
from services.registry.io.changes import Changes
from services.registry.io.database import Database
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.bus_worlds import World as BusWorld
from tests.support.bus_worlds import world_of
from tests.support.postgres import Postgres, running_postgres
from tests.support.registry_place import Place
from tests.support.registry_statements import overheard
from tests.support.registry_world import FakePlacement, FakeReplica, World, world

POOL = pool_id(BASE.base_model_hash, 8)
ON_BOTH_DATABASES = frozenset({
    "test_aliases", "test_base_models", "test_batches", "test_database", "test_deploying", "test_flow", "test_limits",
    "test_migrations", "test_moves", "test_pages", "test_pinning", "test_queries", "test_restart",
    "test_unclaimed_uploads", "test_usage_rows",
})  # fmt: skip
"""Modules whose every test runs on SQLite and on PostgreSQL: what they ask reaches SQL."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each bus and each database once: neither knows of the other."""
    both = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH_DATABASES
    own = hasattr(metafunc.module, "buses")  # a module that speaks to one of them alone makes it by itself
    buses, databases = "buses" in metafunc.fixturenames and not own, "database_url" in metafunc.fixturenames
    if buses:
        pairs = [("memory", "postgresql" if both else "sqlite"), ("nats", "sqlite")]
        metafunc.parametrize(("buses", "database_url"), pairs, indirect=True)
    elif databases:
        metafunc.parametrize("database_url", ["sqlite", *(["postgresql"] if both else [])], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What explains statements comes after all that send them."""
    places = [at for at, item in enumerate(items) if item.path.is_relative_to(Path(__file__).parent)]
    ours = sorted((items[at] for at in places), key=lambda item: item.path.name == "test_queries.py")
    for at, item in zip(places, ours, strict=True):
        items[at] = item


@pytest.fixture(scope="session", autouse=True)
def statements() -> Iterator[Statements]:
    """All that the registry asks of its databases in the tests of this folder."""
    with overheard() as heard:
        yield heard


@pytest.fixture(scope="session")
def one_postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def postgres(one_postgres: Postgres) -> Iterator[Postgres]:
    yield one_postgres
    one_postgres.let_go()


@pytest.fixture
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that is this test's alone."""
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        return await postgres.new_database()
    return f"sqlite+aiosqlite:///{tmp_path}/below/registry.db"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, Changes())
    await database.start()
    yield database
    await database.stop()


@pytest.fixture
async def buses(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> AsyncIterator[BusWorld]:
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
async def here(
    tmp_path: Path, buses: BusWorld, database_url: str, replicas: tuple[FakeReplica, FakeReplica]
) -> AsyncIterator[World]:
    async with world(tmp_path, buses.connect, database_url=database_url) as made:
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
async def alone(tmp_path: Path, broker: MemoryBroker, database_url: str) -> AsyncIterator[World]:
    """Nobody else is on the bus but who a test puts there."""

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    changes = {"ask_timeout_s": 0.2, "largest_file_bytes": 1 << 20, "database_url": database_url}
    async with world(tmp_path, connect, **changes) as made:
        await made.prepare()
        yield made


@pytest.fixture
def place(tmp_path: Path, database_url: str) -> Place:
    return Place(tmp_path, database_url)
