"""Three real replicas on a real bus, any of which may be killed, and a gateway in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.gateway.__main__ import assemble
from services.gateway.settings import Settings
from shared.base_model import base_model_hash
from shared.bus.nats import NatsBus, connect
from shared.bus.port import Ids
from shared.contracts.catalog import API_KEY, BASE_MODEL, MEMBERSHIP, USAGE_RECORDED
from shared.contracts.channel import Service
from shared.messages.desired import ApiKeyRecord, BaseModelRecord, Member, Membership
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from shared.messages.usage import UsageBatch, UsageRecord
from shared.runtime.clock import SystemClock
from tests.support.answers_under_way import AnswersUnderWay
from tests.support.killable_replicas import KillableReplicas, Serve, serve
from tests.support.nats_server import NatsServer, nats_server

NAMES = ("replica-0", "replica-1", "replica-2")
BASE_NAME = "tiny-base"
KEY = "sk-acme"
CONTEXT_TOKENS = 640
ROWS = 32
"""Of each replica: no stream waits for one, whose place in the queue would be lost with the bus."""


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What the registry hears of usage."""

    records: list[UsageRecord] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def on_usage(self, batch: UsageBatch, ids: Ids) -> None:
        async with self.news:
            self.records.extend(batch.records)
            self.news.notify_all()

    async def reach(self, count: int) -> list[UsageRecord]:
        async with self.news:
            await self.news.wait_for(lambda: len(self.records) >= count)
        return self.records


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Three replicas on a real bus and a gateway in front of them."""

    url: str
    server: NatsServer
    replicas: KillableReplicas
    usage: Ledger
    answers: AnswersUnderWay


@asynccontextmanager
async def fleet(folder: Path, model: Path, run: Serve = serve) -> AsyncIterator[Fleet]:
    async with nats_server(folder) as server:
        registry, placement, gateway, listener = [
            await connect(server.options(user)) for user in ("registry", "placement", "gateway", "gateway")
        ]
        base_hash = base_model_hash(model)
        await write_directory(registry, base_hash)
        await write_membership(placement, pool_id(base_hash, 16))
        replicas = KillableReplicas({name: environment(name, server, folder, model) for name in NAMES}, folder, run)
        usage, answers = Ledger(), AnswersUnderWay()
        await answers.listen(listener)
        await registry.consume(USAGE_RECORDED, Service.REGISTRY.value, usage.on_usage)
        settings = Settings(nats_url="", nats_user="", nats_password="", gateway_id="gateway-0", port=0)
        assembly = assemble(settings, gateway, SystemClock())
        try:
            await replicas.start(placement)
            for part in assembly.parts:
                await part.start()
            await assembly.following.full.wait()
            url = f"http://127.0.0.1:{assembly.server.port}"
            yield Fleet(url=url, server=server, replicas=replicas, usage=usage, answers=answers)
        finally:
            for part in reversed(assembly.parts):
                await part.stop()
            await replicas.stop()
            for bus in (registry, placement, gateway, listener):
                await bus.close()


async def write_directory(registry: NatsBus, base_hash: str) -> None:
    base = BaseModelRecord(
        base_model_hash=base_hash,
        name=BASE_NAME,
        layers=2,
        modules={},
        rank_classes=(16,),
        max_context_tokens=CONTEXT_TOKENS,
    )
    await registry.state(BASE_MODEL).put(base, base_hash)
    await registry.state(API_KEY).put(ApiKeyRecord(key_id="k1", tenant_id="acme", may_call_base=True), key_of(KEY))


async def write_membership(placement: NatsBus, pool: str) -> None:
    members = tuple(
        Member(
            replica_id=name, incarnation="", weight=1.0, slots=2, rank_limit=16, ram_budget_bytes=0,
            disk_budget_bytes=0, ready=True,
        )
        for name in NAMES
    )  # fmt: skip
    await placement.state(MEMBERSHIP).put(Membership(pool_id=pool, epoch=1, revision=1, members=members), pool)


def environment(name: str, server: NatsServer, folder: Path, model: Path) -> dict[str, str]:
    options = server.options("replica_worker")
    given = {
        "REPLICA_ID": name, "MODEL_FOLDER": model, "STORE_URL": f"file://{folder}/objects",
        "CACHE_FOLDER": folder / name, "NATS_URL": options.url, "NATS_USER": options.user,
        "NATS_PASSWORD": options.password, "SLOTS": 2, "MAX_ROWS": ROWS, "THREADS": 1,
        "MAX_CONTEXT_TOKENS": CONTEXT_TOKENS,
    }  # fmt: skip
    return {f"LORAFLEET_WORKER_{key}": str(value) for key, value in given.items()}
