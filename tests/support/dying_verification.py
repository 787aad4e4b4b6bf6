"""A registry that keeps an announcement and is killed while it reads the file.

Run as `python -m tests.support.dying_verification <folder> <database url>`; it ends by SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from services.registry.io.weights import Weights, WeightsSources
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from tests.support.registry_world import world


async def die(sources: WeightsSources, uri: str) -> Weights:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


async def main(folder: Path, database_url: str) -> None:
    broker = MemoryBroker()
    WeightsSources.open = die

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(folder, connect, database_url=database_url) as here:
        await here.prepare()
        await here.post(here.announce("v1"))


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(Path(sys.argv[1]), sys.argv[2]), 20))
