"""A real Valkey for a test: its own port and password, and a death whenever the test wants it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from infra.nats.credentials import write_private
from infra.valkey.config import server_config, url
from infra.valkey.program import find_valkey_server

START_S = 20.0
_HOST, _PASSWORD = "127.0.0.1", "of-a-test"


class ValkeyServer:
    """The port stays the same over restarts; nothing else does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            self._port = probe.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return url(_HOST, self._port, _PASSWORD)

    async def start(self) -> None:
        """Returns when it takes connections."""
        config = self._folder / "valkey.conf"
        write_private(config, server_config(_HOST, self._port, _PASSWORD).encode())
        with (self._folder / "valkey.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(find_valkey_server(), str(config), stdout=log)
        async with asyncio.timeout(START_S):
            while not await self._listens():  # noqa: ASYNC110 - a port offers no event to wait for
                await asyncio.sleep(0)

    async def kill(self) -> None:
        """As `kill -9`."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(_HOST, self._port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@asynccontextmanager
async def valkey_server(folder: Path) -> AsyncIterator[ValkeyServer]:
    server = ValkeyServer(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
