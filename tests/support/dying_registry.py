"""A registry that commits one tenant and is killed at the moment it would tell the bus.

Run as `python -m tests.support.dying_registry <folder> <database URL>`; it ends by SIGKILL, or with exit code 1 if the
commit was not followed by an attempt to publish.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus, StateStore
from shared.contracts.catalog import TENANT
from shared.contracts.channel import Channel
from tests.support.registry_world import world


class Deadly:
    """A bucket into which nothing is ever put."""

    def __init__(self, store: StateStore[Any]) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *arguments: Any, **options: Any) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class Killing:
    """Its bus: once `armed`, the first tenant that is to be put kills the process. Other parts of the registry look at
    buckets and write to theirs whenever they like."""

    def __init__(self, bus: Bus) -> None:
        self.armed = False
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def state(self, channel: Channel[Any, Any]) -> StateStore[Any]:
        store = self._bus.state(channel)
        return cast(StateStore[Any], Deadly(store)) if self.armed and channel is TENANT else store


async def main(folder: Path, database_url: str) -> None:
    bus = Killing(MemoryBroker().connect("registry"))

    async def connect(service: str) -> Bus:
        return cast(Bus, bus)

    async with world(folder, connect, database_url=database_url) as here:
        while (await here.admin.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - readiness is asked for
            await asyncio.sleep(0)
        bus.armed = True
        await here.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": 3.0})
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(Path(sys.argv[1]), sys.argv[2]), 20))
