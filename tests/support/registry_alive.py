"""A registry in a process of its own, as operators start it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec

from tests.support.adapter_files import BASE
from tests.support.nats_server import NatsServer
from tests.support.registry_watch import eventually
from tests.support.registry_world import ADMIN_KEY

ROOT = Path(__file__).parents[2]


def environ(folder: Path, server: NatsServer, **changes: str) -> dict[str, str]:
    options = server.options("registry")
    said = {
        "NATS_URL": options.url,
        "NATS_USER": options.user,
        "NATS_PASSWORD": options.password,
        "HOST": "127.0.0.1",
        "PORT": str(free_port()),
        "DATABASE_URL": f"sqlite+aiosqlite:///{folder}/registry.db",
        "STORE_URL": (folder / "store").as_uri(),
        "ADMIN_KEY": ADMIN_KEY,
        "WEIGHTS_PREFIXES": (folder / "inbox").as_uri(),
        "EVALUATION_RETRY_S": "0.05",
    }
    return {f"LORAFLEET_REGISTRY_{name}": value for name, value in {**said, **changes}.items()}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Running:
    def __init__(self, process: asyncio.subprocess.Process, admin: httpx.AsyncClient) -> None:
        self.process = process
        self.admin = admin

    async def ready(self) -> None:
        async def is_ready() -> bool:
            try:
                return (await self.admin.get("/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(is_ready)

    async def is_active(self, adapter_id: str) -> bool:
        answer = await self.admin.get(f"/internal/adapters/{adapter_id}")
        return answer.json().get("status") == "active"


async def spawn(settings: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.registry",
        cwd=ROOT, env={**os.environ, **settings}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@asynccontextmanager
async def running(settings: Mapping[str, str]) -> AsyncIterator[Running]:
    process = await spawn(settings)
    url = f"http://127.0.0.1:{settings['LORAFLEET_REGISTRY_PORT']}"
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {ADMIN_KEY}"}) as admin:
        try:
            registry = Running(process, admin)
            await registry.ready()
            yield registry
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def prepare(admin: httpx.AsyncClient) -> None:
    base = await admin.put(f"/internal/base-models/{BASE.base_model_hash}", json=msgspec.to_builtins(BASE))
    tenant = await admin.post("/internal/tenants", json={"tenant_id": "acme"})
    assert (base.status_code, tenant.status_code) == (201, 201)
