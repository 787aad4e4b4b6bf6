"""A gateway with everything around it that it hears from: a registry's and a placement's word, and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from openai import AsyncOpenAI

from services.gateway.__main__ import Assembly, assemble
from services.gateway.settings import Settings
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.port import Bus
from shared.contracts.catalog import ALIAS, API_KEY, BASE_MODEL, MEMBERSHIP
from shared.hashing import rank
from shared.messages.desired import AliasRecord, AliasTarget, ApiKeyRecord, BaseModelRecord, Member, Membership
from shared.messages.identity import AdapterKey, key_of
from shared.messages.pools import pool_id
from shared.runtime.clock import ManualClock
from shared.runtime.tracing import NO_TRACER, Tracer
from tests.support.scripted_replica import Script, ScriptedReplica

BASE_HASH = "b" * 64
BASE_NAME = "tiny-base"
POOL = pool_id(BASE_HASH, 16)
ALIAS_NAME = "acme/support:prod"
ADAPTER = AdapterKey(adapter_id="acme-support-1", digest="a" * 64)
KEY = "sk-acme"
FOREIGN_KEY = "sk-globex"
FOREIGN_ALIAS = "globex/sales"

SETTINGS = Settings(nats_url="", nats_user="", nats_password="", gateway_id="gateway-0", port=0)


class WorldClock(ManualClock):
    """Stands still until it is advanced, and can jump as it does for a program that was held up."""

    def __init__(self) -> None:
        super().__init__()
        self._jumped_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self._jumped_s

    def hold_up(self, seconds: float) -> None:
        """Time passes in which nothing of the program ran."""
        self._jumped_s += seconds


@dataclass(frozen=True, kw_only=True)
class World:
    """`replicas` are in the order in which they own ADAPTER; `bus` is the gateway's."""

    assembly: Assembly
    broker: MemoryBroker
    bus: MemoryBus
    clock: WorldClock
    replicas: list[ScriptedReplica]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.assembly.server.port}"

    def client(self, key: str = KEY) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=20.0)

    async def arrived(self) -> None:
        """Returns when a request is under way in the gateway."""
        async with self.client() as client:
            while "lorafleet_gateway_streams 1.0" not in (await client.get("/metrics")).text:
                pass

    def openai(self, key: str = KEY) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)


def body(**changes: object) -> dict[str, object]:
    return {"model": ALIAS_NAME, "messages": [{"role": "user", "content": "hello"}], **changes}


def member(replica_id: str) -> Member:
    return Member(
        replica_id=replica_id, incarnation=f"{replica_id}-1", weight=1.0, slots=4, rank_limit=16, ram_budget_bytes=0,
        disk_budget_bytes=0, ready=True,
    )  # fmt: skip


async def write_directory(registry: Bus) -> None:
    base = BaseModelRecord(
        base_model_hash=BASE_HASH, name=BASE_NAME, layers=2, modules={}, rank_classes=(16,), max_context_tokens=2_048
    )
    await registry.state(BASE_MODEL).put(base, BASE_HASH)
    await put_alias(registry, ALIAS_NAME, "acme", ADAPTER)
    await put_alias(registry, FOREIGN_ALIAS, "globex", AdapterKey(adapter_id="globex-1", digest="c" * 64))
    keys = registry.state(API_KEY)
    await keys.put(ApiKeyRecord(key_id="k1", tenant_id="acme", may_call_base=True), key_of(KEY))
    await keys.put(ApiKeyRecord(key_id="k2", tenant_id="globex"), key_of(FOREIGN_KEY))


async def put_alias(
    registry: Bus, alias: str, tenant_id: str, adapter: AdapterKey, split: AdapterKey | None = None
) -> None:
    """With `split` half of the sessions mean that one."""
    record = AliasRecord(
        alias=alias, tenant_id=tenant_id, adapter_id=adapter.adapter_id, digest=adapter.digest, pool_id=POOL,
        base_model_hash=BASE_HASH, base_model_name=BASE_NAME, updated_at_s=5.0, split=_target(split),
        split_percent=50.0 if split else 0.0, split_salt="salt" if split else "",
    )  # fmt: skip
    await registry.state(ALIAS).put(record, key_of(alias))


def _target(adapter: AdapterKey | None) -> AliasTarget | None:
    if adapter is None:
        return None
    return AliasTarget(
        adapter_id=adapter.adapter_id, digest=adapter.digest, pool_id=POOL, base_model_hash=BASE_HASH,
        base_model_name=BASE_NAME,
    )  # fmt: skip


async def write_membership(placement: Bus, replica_ids: list[str]) -> None:
    members = tuple(member(name) for name in replica_ids)
    await placement.state(MEMBERSHIP).put(Membership(pool_id=POOL, epoch=1, revision=1, members=members), POOL)


def in_owner_order(names: list[str]) -> list[str]:
    return list(rank(ADAPTER.adapter_id, dict.fromkeys(names, 1.0)))


@asynccontextmanager
async def gateway_world(
    *scripts: Script | None, settings: Settings = SETTINGS, tracer: Tracer = NO_TRACER
) -> AsyncIterator[World]:
    """A replica for each script, first owner first. The gateway's time stands still until a test moves it."""
    broker, clock = MemoryBroker(), WorldClock()
    await write_directory(broker.connect("registry"))
    names = in_owner_order([f"replica-{index}" for index in range(len(scripts))])
    await write_membership(broker.connect("placement"), names)
    bus = broker.connect("gateway")
    assembly = assemble(settings, bus, clock, tracer)
    for part in assembly.parts:
        await part.start()
    async with asyncio.timeout(10):
        await assembly.following.full.wait()  # the door listens before
    replicas = [
        ScriptedReplica(broker.connect("replica_worker"), name, POOL, script)
        for name, script in zip(names, scripts, strict=True)
    ]
    for replica in replicas:
        await replica.start()
    await clock.advance(0.0)  # until their reports are heard
    try:
        yield World(assembly=assembly, broker=broker, bus=bus, clock=clock, replicas=replicas)
    finally:
        for part in reversed(assembly.parts):
            await part.stop()
        await bus.close()
