"""The registry as operators start it: its own process, its own rights on a real bus."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from shared.bus.nats import connect
from shared.contracts import catalog
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, announcement, file_of, write_folder
from tests.support.nats_server import NatsServer, nats_server
from tests.support.registry_alive import environ, prepare, running, spawn
from tests.support.registry_watch import eventually
from tests.support.registry_world import FakePlacement, FakeReplica

POOL = pool_id(BASE.base_model_hash, 8)
EXIT_DEADLINE_S = 90.0
"""Against a process that never ends. Only to import what a registry needs takes seconds of a processor, and many
times that while other tests share it."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    folder = tmp_path / "nats"
    folder.mkdir()
    async with nats_server(folder) as server:
        yield server


async def test_kill_9_in_the_middle_of_an_evaluation_loses_nothing(tmp_path: Path, server: NatsServer) -> None:
    settings = environ(tmp_path, server)
    announced = write_folder(tmp_path / "inbox" / "v1", file_of(), announcement(file_of(), adapter_id="v1"))
    announced = msgspec.structs.replace(announced, alias="acme/support:prod")
    async with running(settings) as registry:
        await prepare(registry.admin)
        answer = await registry.admin.post("/internal/adapters", json=msgspec.to_builtins(announced))
        assert answer.status_code == 201
        registry.process.kill()
        await registry.process.wait()
    placement, worker = await connect(server.options("placement")), await connect(server.options("replica_worker"))
    gateway = await connect(server.options("gateway"))
    await FakePlacement(POOL, ("r1",)).serve(placement)
    await FakeReplica("r1").serve(worker)
    async with running(settings) as registry:
        await eventually(lambda: registry.is_active("v1"))

        async def routed() -> bool:
            return await gateway.state(catalog.ALIAS).get(key_of("acme/support:prod")) is not None

        await eventually(routed)
    for bus in (placement, worker, gateway):
        await bus.close()


async def test_an_event_that_came_while_it_was_away_is_not_lost(tmp_path: Path, server: NatsServer) -> None:
    settings = environ(tmp_path, server)
    async with running(settings) as registry:
        await prepare(registry.admin)
    announced = write_folder(tmp_path / "inbox" / "v1", file_of(), announcement(file_of(), adapter_id="v1"))
    pipeline = await connect(server.options("pipeline"))
    await pipeline.publish(catalog.ADAPTER_REGISTERED, announced)
    await pipeline.close()
    async with running(settings) as registry:

        async def known() -> bool:
            return (await registry.admin.get("/internal/adapters/v1")).status_code == 200

        await eventually(known)


async def test_it_stops_in_order(tmp_path: Path, server: NatsServer) -> None:
    async with running(environ(tmp_path, server)) as registry:
        registry.process.terminate()
        async with asyncio.timeout(EXIT_DEADLINE_S):
            assert await registry.process.wait() == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ADMIN_KYE": "x"}, "did you mean LORAFLEET_REGISTRY_ADMIN_KEY?"),
        ({"STORE_URL": "ftp://bucket/prefix"}, "names no store"),
    ],
)
async def test_a_wrong_setting_is_one_line_and_exit_code_2(
    tmp_path: Path, server: NatsServer, changes: dict[str, str], sentence: str
) -> None:
    process = await spawn(environ(tmp_path, server, **changes))
    async with asyncio.timeout(EXIT_DEADLINE_S):
        _, errors = await process.communicate()
    lines = errors.decode().strip().splitlines()
    assert (process.returncode, len(lines)) == (2, 1)
    assert sentence in lines[0]


async def test_a_port_in_use_ends_it_with_its_reason(tmp_path: Path, server: NatsServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = await spawn(environ(tmp_path, server, PORT=str(taken.getsockname()[1])))
        async with asyncio.timeout(EXIT_DEADLINE_S):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert "Address already in use" in errors.decode()
