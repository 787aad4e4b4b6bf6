"""Servers that several modules ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.bus_worlds import NatsWorld, world_of
from tests.support.valkey_server import ValkeyServer, valkey_server


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    async with valkey_server(tmp_path) as server:
        yield server


@pytest.fixture
async def nats_world(tmp_path: Path) -> AsyncIterator[NatsWorld]:
    async with world_of("nats", tmp_path) as made:
        assert isinstance(made, NatsWorld)
        yield made
