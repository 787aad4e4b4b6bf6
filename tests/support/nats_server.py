"""A real nats-server for a test: free ports, the permissions of the catalog, streams provisioned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from infra.nats.config import Ports, server_config
from infra.nats.credentials import load_or_create, write_private
from infra.nats.program import find_nats_server
from shared.bus.nats import BusOptions
from shared.bus.nats_provision import provision
from shared.contracts.permissions import PROVISIONER

START_S = 20.0


class NatsServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passwords = load_or_create(folder / "credentials.json")
        self._ports = Ports(client=-1, monitoring=-1)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._ports.client}"

    @property
    def monitoring_url(self) -> str:
        return f"http://127.0.0.1:{self._ports.monitoring}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def options(self, user: str, client_name: str = "test") -> BusOptions:
        """How a service (or the provisioner) connects. The ports stay the same over restarts."""
        return BusOptions(url=self.url, user=user, password=self._passwords[user], client_name=client_name)

    async def start(self) -> None:
        """Returns when the server listens."""
        config = self._folder / "nats.conf"
        write_private(config, server_config(self._ports, self._folder / "store", self._passwords).encode())
        with (self._folder / "nats.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                find_nats_server(), "-c", str(config), "--ports_file_dir", str(self._folder), stdout=log, stderr=log
            )
        async with asyncio.timeout(START_S):
            self._ports = await self._listening()

    async def stop(self) -> None:
        """Orderly. A server that was killed already is stopped, too."""
        await self._end(kill=False)

    async def kill(self) -> None:
        """As `kill -9`."""
        await self._end(kill=True)

    async def restart(self, *, kill: bool = False) -> None:
        await self._end(kill=kill)
        await self.start()

    async def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            (process.kill if kill else process.terminate)()
        await process.wait()

    async def _listening(self) -> Ports:
        """The server writes the ports file before it listens, so knock until it opens."""
        assert self._process is not None
        told = self._folder / f"{Path(find_nats_server()).name}_{self._process.pid}.ports"
        while True:
            if self._process.returncode is not None:
                raise RuntimeError(f"nats-server ended: {(self._folder / 'nats.log').read_text()[-2000:]}")
            ports = _ports_in(told)
            if ports is not None and await _opens(ports.client):
                return ports
            await asyncio.sleep(0.01)


@asynccontextmanager
async def nats_server(folder: Path) -> AsyncIterator[NatsServer]:
    """Started and provisioned; all it keeps is below `folder`."""
    server = NatsServer(folder)
    try:
        await server.start()
        await provision(server.options(PROVISIONER))
        yield server
    finally:
        await server.kill()


def _ports_in(file: Path) -> Ports | None:
    """None while the file is missing or half written."""
    try:
        told = json.loads(file.read_text())
        return Ports(client=_port(told["nats"]), monitoring=_port(told["monitoring"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None


def _port(urls: list[str]) -> int:
    port = urlsplit(urls[0]).port
    assert port is not None
    return port


async def _opens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
