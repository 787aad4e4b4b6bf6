"""What stands in the usage table is, token for token, what replicas delivered: clients that leave, refusals and
registries that die in the middle included."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from sqlalchemy import func, select

from services.gateway.usage import SEND_S
from services.registry.accounting.usage import Usage
from services.registry.accounting.usage_intake import UsageIntake
from services.registry.core.usage import DAY_S
from services.registry.io.changes import Changes
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.io.usage_tables import USAGE
from shared.runtime.metrics import Metrics
from tests.support.gateway_world import ALIAS_NAME, FOREIGN_ALIAS, FOREIGN_KEY, KEY, World, body, gateway_world
from tests.support.registry_watch import eventually
from tests.support.talkers import Talkers

PATH = "/v1/chat/completions"
KINDS = ("stream", "whole", "leave stream", "leave whole", "refused")
CLIENTS = {"acme": (KEY, ALIAS_NAME), "globex": (FOREIGN_KEY, FOREIGN_ALIAS)}
OF_EACH = 10
TOKENS = 5
SEEN_BEFORE_LEAVING = 3
Done = Callable[[], Awaitable[object]]
Within = Callable[[float], AbstractAsyncContextManager[None]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One request for five tokens."""

    kind: str
    tenant_id: str
    name: str

    @property
    def body(self) -> dict[str, object]:
        _, alias = CLIENTS[self.tenant_id]
        prompt = {"role": "user", "content": f"{self.kind} {TOKENS} {self.name}"}
        return body(model=alias, stream=self.kind.endswith("stream"), messages=[prompt])


class DyingMeters(Meters):
    """Its registry is gone before it can acknowledge what it has committed."""

    def __init__(self) -> None:
        super().__init__(Metrics("registry"))
        self.died = asyncio.Event()

    def usage(self, new: int, repeated: int) -> None:
        self.died.set()
        raise RuntimeError("killed after its commit")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/registry.db", Changes())
    await database.start()
    yield database
    await database.stop()


@asynccontextmanager
async def intake(world: World, database: Database, meters: Meters) -> AsyncIterator[None]:
    taking = UsageIntake(world.broker.connect("registry"), database, world.clock, meters, DAY_S)
    await taking.start()
    yield
    await taking.stop()


async def ask(client: httpx.AsyncClient, talkers: Talkers, wish: Wish) -> int:
    """How many tokens the client saw."""
    if wish.kind == "leave stream":
        return await _leave_after_three(client, wish.body)
    asking = asyncio.create_task(client.post(PATH, json=wish.body))
    if wish.kind == "leave whole":
        await talkers.all_said(wish.name)
        asking.cancel()
        return 0
    answer = await asking
    if wish.kind == "refused":
        assert answer.status_code == 400
        return 0
    return len(_texts(answer.text.splitlines())) if wish.kind == "stream" else _tokens_of(answer)


async def _leave_after_three(client: httpx.AsyncClient, asked: dict[str, object]) -> int:
    async with client.stream("POST", PATH, json=asked) as answer:
        lines: list[str] = []
        async for line in answer.aiter_lines():
            lines.append(line)
            if len(_texts(lines)) == SEEN_BEFORE_LEAVING:
                return SEEN_BEFORE_LEAVING
    raise AssertionError("the stream ended before the client could leave")


def _texts(lines: list[str]) -> list[str]:
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return [text for event in events if (text := event["choices"][0]["delta"]["content"])]


def _tokens_of(answer: httpx.Response) -> int:
    whole = answer.json()
    assert len(whole["choices"][0]["message"]["content"].split()) == whole["usage"]["completion_tokens"]
    return int(whole["usage"]["completion_tokens"])


async def recorded(database: Database) -> dict[str, tuple[int, int]]:
    """Requests and completion tokens of each tenant, from the single records."""
    query = select(USAGE.c.tenant_id, func.count(), func.sum(USAGE.c.completion_tokens)).group_by(USAGE.c.tenant_id)
    async with database.read() as connection:
        return {tenant_id: (requests, tokens) for tenant_id, requests, tokens in await connection.execute(query)}


async def all_recorded(database: Database, count: int) -> None:
    async def found() -> bool:
        return sum(requests for requests, _ in (await recorded(database)).values()) == count

    await eventually(found)


async def asked(
    world: World, talkers: Talkers, wishes: list[Wish], taking: AbstractAsyncContextManager[None], done: Done
) -> list[int]:
    """What each client saw of a request that this registry records; `done` says when it has."""
    clients = {tenant_id: world.client(key) for tenant_id, (key, _) in CLIENTS.items()}
    async with taking, clients["acme"], clients["globex"]:
        seen = await asyncio.gather(*(ask(clients[wish.tenant_id], talkers, wish) for wish in wishes))
        await world.clock.advance(SEND_S)
        await done()
    return seen


async def test_every_token_that_was_delivered_is_recorded_once(database: Database, within: Within) -> None:
    talkers, dying = Talkers(), DyingMeters()
    kinds = itertools.product(KINDS, CLIENTS, range(OF_EACH))
    wishes = [Wish(kind=kind, tenant_id=tenant, name=str(at)) for at, (kind, tenant, _) in enumerate(kinds)]
    async with within(30), gateway_world(talkers, talkers) as world:
        await talkers.listen(world.broker.connect("gateway"), world.replicas)
        first, second = intake(world, database, dying), intake(world, database, Meters(Metrics("registry")))
        seen = await asked(world, talkers, wishes[::2], first, dying.died.wait)
        seen += await asked(world, talkers, wishes[1::2], second, lambda: all_recorded(database, len(wishes)))
        ended = list(zip(wishes[::2] + wishes[1::2], seen, strict=True))
        table = await recorded(database)
        assert {tenant: tokens for tenant, (_, tokens) in table.items()} == dict(talkers.tokens)
        for tenant, (requests, tokens) in table.items():
            mine = [(wish.kind, saw) for wish, saw in ended if wish.tenant_id == tenant]
            assert requests == len(mine)
            assert {saw for kind, saw in mine if kind in ("stream", "whole")} == {TOKENS}
            assert tokens >= sum(saw for _, saw in mine)
            compared = await Usage(database, world.clock, DAY_S).reconcile(tenant)
            assert compared.agrees
            assert [day.recorded.completion_tokens for day in compared.days] == [tokens]
        await talkers.close()
