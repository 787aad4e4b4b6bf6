"""Gateways of one fleet with limits, as a customer sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec

from services.gateway.__main__ import Assembly, assemble
from services.gateway.limits import TURN_S
from services.gateway.settings import Settings
from shared.contracts.catalog import API_KEY, TENANT
from shared.messages.desired import ApiKeyRecord, Limits, TenantRecord
from shared.messages.identity import key_of
from tests.support.gateway_world import KEY, World, body
from tests.support.scripted_replica import ScriptedReplica

PATH = "/v1/chat/completions"


class Door:
    """One gateway, as a customer sees it."""

    def __init__(self, assembly: Assembly) -> None:
        self._url = f"http://127.0.0.1:{assembly.server.port}"

    async def post(self, key: str = KEY, headers: dict[str, str] | None = None, **changes: object) -> httpx.Response:
        authorized = {"authorization": f"Bearer {key}", **(headers or {})}
        async with httpx.AsyncClient(base_url=self._url, headers=authorized, timeout=30.0) as client:
            return await client.post(PATH, json=body(**changes))

    async def statuses(self, count: int, **changes: object) -> list[int]:
        return [answer.status_code for answer in await asyncio.gather(*(self.post(**changes) for _ in range(count)))]

    async def shows(self, metric: str) -> None:
        """Returns once this line is among the metrics."""
        async with httpx.AsyncClient(base_url=self._url) as client:
            while metric not in (await client.get("/metrics")).text.splitlines():
                pass


@asynccontextmanager
async def two_gateways(world: World, chosen: Settings) -> AsyncIterator[tuple[Door, Door]]:
    """The world's own and a second one, which have heard of each other."""
    bus = world.broker.connect("gateway")
    second = assemble(msgspec.structs.replace(chosen, gateway_id="gateway-1"), bus, world.clock)
    for part in second.parts:
        await part.start()
    await second.following.full.wait()
    await world.replicas[0].report()
    await world.clock.advance(1.0)
    await world.clock.advance(TURN_S)
    try:
        yield Door(world.assembly), Door(second)
    finally:
        for part in reversed(second.parts):
            await part.stop()
        await bus.close()


async def limit(world: World, limits: Limits, of_key: Limits | None = None) -> None:
    """Returns when the gateways of this world have heard of it, as all are told in one go."""
    registry = world.broker.connect("registry")
    await registry.state(TENANT).put(TenantRecord(tenant_id="acme", limits=limits), "acme")
    if of_key is not None:
        record = ApiKeyRecord(key_id="k1", tenant_id="acme", may_call_base=True, limits=of_key)
        await registry.state(API_KEY).put(record, key_of(KEY))
    await world.clock.advance(0.0)


async def complete(replica: ScriptedReplica, request: object) -> None:
    await replica.queue(request)  # type: ignore[arg-type]
    await replica.accept(request)  # type: ignore[arg-type]
    await replica.finish(request, "hi")  # type: ignore[arg-type]
