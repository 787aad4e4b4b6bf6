"""The Valkey of an embedded fleet: behind a password, in bounded memory, and back after it died."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, ConnectionError

from infra.docker.healthy import main as healthy
from infra.local.layout import Layout
from infra.local.settings import LocalSettings
from infra.local.supervisor import Supervisor
from infra.local.valkey import NAME, start_valkey
from infra.valkey.config import MEMORY_MB
from tests.conftest import Within


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "home")
    made.create()
    return made


async def answer(url: str) -> Redis:
    """A client, once the server answers it."""
    client = Redis.from_url(url)
    while True:
        try:
            await client.ping()
            return client
        except ConnectionError:
            await asyncio.sleep(0)


async def test_it_is_guarded_bounded_and_there_again_at_the_same_place(layout: Layout, within: Within) -> None:
    supervisor = Supervisor(layout, lambda _: None)
    url = start_valkey(supervisor, layout, LocalSettings())
    keeping = asyncio.create_task(supervisor.keep_alive())
    async with within(20):
        async with await answer(url) as client:
            assert (await client.config_get("maxmemory"))["maxmemory"] == str(MEMORY_MB << 20)
            assert (await client.config_get("save"))["save"] == ""
        _, _, place = url.rpartition("@")
        async with Redis.from_url(f"redis://{place}") as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.ping()
        assert healthy(f"tcp://{place.partition('/')[0]}") == 0
        os.kill(msgspec.json.decode(layout.pids.read_bytes())[NAME], signal.SIGKILL)
        async with await answer(url) as client:
            assert await client.dbsize() == 0
    keeping.cancel()
    await supervisor.stop()
    assert healthy(f"tcp://{place.partition('/')[0]}") == 1
    for name in ("password", "valkey.conf"):
        assert (layout.valkey / name).stat().st_mode & 0o077 == 0


async def test_an_operators_own_redis_is_used_instead(layout: Layout) -> None:
    supervisor = Supervisor(layout, lambda _: None)
    mine = "redis://:secret@redis.example:6379/3"
    assert start_valkey(supervisor, layout, LocalSettings(redis_url=mine)) == mine
    assert supervisor.names() == frozenset()
