"""A registry of a test at an address of its own, for clients that speak HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.pipeline.connect import Where
from shared.pipeline.door import Patience
from shared.runtime.http_server import HttpServer
from tests.support.registry_world import ADMIN_KEY, World

QUICK = Patience(give_up_s=10.0, first_s=0.001, longest_s=0.02)


@asynccontextmanager
async def served(here: World) -> AsyncIterator[str]:
    """The admin address."""
    server = HttpServer(here.door, ("127.0.0.1", 0), 0.0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


def where(admin_url: str = "", nats_url: str = "") -> Where:
    return Where(admin_url=admin_url, admin_key=ADMIN_KEY, nats_url=nats_url)
