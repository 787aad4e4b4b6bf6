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
from shared.contracts.channel import Channel
from tests.support.registry_world import world


class Killing:
    """Its bus: once `armed`, the first value that is to be put kills the process."""

    def __init__(self, bus: Bus) -> None:
        self.armed = False
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def state(self, channel: Channel[Any, Any]) -> StateStore[Any]:
        if self.armed:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._bus.state(channel)


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
