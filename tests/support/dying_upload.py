"""A registry that is killed while a file that came in two pieces becomes an object, or is verified.

Run as `python -m tests.support.dying_upload <folder> <database URL> <noted|placed|checked>`: it ends by SIGKILL once
the upload is on record, once it lies at its place in the store as well, or once its announcement's file was found good.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from starlette.requests import ClientDisconnect

from services.registry.registration.findings import Finding, Findings
from services.registry.registration.outcomes import Outcome
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.store import file as store_in_a_folder
from tests.support.registry_world import world


def die_at(point: str) -> None:
    rename = store_in_a_folder.place_for_good

    def deadly(file: Path, place: Path) -> None:
        if point == "noted":
            die()
        rename(file, place)
        if point == "placed":
            die()

    async def record(findings: Findings, finding: Finding) -> Outcome:
        die()
        raise AssertionError

    store_in_a_folder.place_for_good = deadly
    Findings.record = record


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: Path, database_url: str, point: str) -> None:
    broker = MemoryBroker()
    die_at(point)

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(folder, connect, database_url=database_url) as here:
        await here.prepare()
        announced = here.announce("v1")
        file = (here.folder / "inbox" / "v1" / "adapter_model.safetensors").read_bytes()
        path = f"/internal/uploads/{announced.checksum}"

        async def half() -> AsyncIterator[bytes]:
            yield file[:1000]
            raise ClientDisconnect

        await here.admin.put(path, content=half())
        await here.admin.put(path, content=file[1000:], headers={"upload-offset": "1000"})
        await here.post(msgspec.structs.replace(announced, weights_uri=f"upload:{announced.checksum}"))


if __name__ == "__main__":
    told = main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    asyncio.run(asyncio.wait_for(told, 20))
