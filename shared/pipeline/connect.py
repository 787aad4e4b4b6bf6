"""Where a pipeline finds the fleet, and how it gets there.

    async with connect(Where(admin_url=..., admin_key=..., nats_url=...)) as pipeline:
        outcome = await pipeline.register_folder(Path("out/checkpoint"), Identity(tenant_id=..., base_model_hash=...))

With `nats_url` it announces by event and hears the outcome there; with `admin_url` it sends files, announces by POST
if there is no bus, and asks where an adapter stands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

import msgspec

from shared.bus.nats import BusOptions
from shared.bus.nats import connect as connect_bus
from shared.bus.port import BusUnavailable
from shared.pipeline.client import Pipeline
from shared.pipeline.door import Door, Patience
from shared.pipeline.hearing import Hearing
from shared.pipeline.outcome import Unreachable

USUAL_PATIENCE = Patience()


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where the fleet is: the admin address with its key, the bus with the login in it
    (`nats://pipeline:PASSWORD@host:port`), or both."""

    admin_url: str = ""
    admin_key: str = ""
    nats_url: str = ""

    def __post_init__(self) -> None:
        if not (self.admin_url or self.nats_url):
            raise ValueError("a pipeline needs admin_url or nats_url")
        parts = urlsplit(self.nats_url)
        if self.nats_url and not (parts.hostname and parts.username and parts.password):
            raise ValueError("nats_url must look like nats://pipeline:PASSWORD@host:port")


@asynccontextmanager
async def connect(where: Where, patience: Patience = USUAL_PATIENCE) -> AsyncIterator[Pipeline]:
    """Raises Unreachable if there is no bus; an admin address is not asked before it is needed."""
    door = Door(where.admin_url, where.admin_key, patience) if where.admin_url else None
    hearing = await _hearing(where.nats_url, patience) if where.nats_url else None
    try:
        yield Pipeline(door, hearing)
    finally:
        if hearing is not None:
            await hearing.close()
        if door is not None:
            await door.close()


async def _hearing(nats_url: str, patience: Patience) -> Hearing:
    try:
        bus = await connect_bus(_options(nats_url))
    except BusUnavailable as error:
        raise Unreachable(f"{error}.") from error
    hearing = Hearing(bus, patience)
    try:
        await hearing.start()
    except BusUnavailable as error:
        await bus.close()
        raise Unreachable(f"{error}.") from error
    return hearing


def _options(nats_url: str) -> BusOptions:
    parts = urlsplit(nats_url)
    return BusOptions(
        url=f"nats://{parts.hostname}:{parts.port or 4222}",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        client_name="pipeline",
    )
