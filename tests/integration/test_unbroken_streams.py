"""Whatever is killed, stopped or held up under running streams, clients read what they would have read without it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from services.gateway.__main__ import assemble
from services.gateway.settings import Settings
from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.requests.running import Running
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
from tests.support.killable_replicas import KillableReplicas, Serve, serve
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tiny_model import tiny_model_once

NAMES = ("replica-0", "replica-1", "replica-2")
BASE_NAME = "tiny-base"
KEY = "sk-acme"
STREAMS, KILLS, AT_ONCE = 200, 20, 24
STREAMS_A_KILL = STREAMS // KILLS
PROMPTS = 25
CONTEXT_TOKENS = 640
KILLED_TWICE = "2 replicas were lost while they worked on this request, so no other is asked."
STALL_S = 5.0
Within = Callable[[float], AbstractAsyncContextManager[None]]
Body = dict[str, Any]


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has read. `error`: what ended it too early."""

    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""


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


@dataclass(kw_only=True)
class Pace:
    """So that kills and streams keep step: neither gets far ahead of the other. A stream has `begun` once it has text,
    or is over."""

    begun: int = 0
    killed: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def may_begin(self, number: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: number < AT_ONCE + self.killed * STREAMS_A_KILL)

    async def count_begun(self) -> None:
        async with self.news:
            self.begun += 1
            self.news.notify_all()

    async def reach(self, begun: int) -> None:
        """Returns once so many streams have begun."""
        async with self.news:
            await self.news.wait_for(lambda: self.begun >= begun)

    async def count_kill(self) -> None:
        async with self.news:
            self.killed += 1
            self.news.notify_all()


@asynccontextmanager
async def fleet(folder: Path, model: Path, run: Serve = serve) -> AsyncIterator[Fleet]:
    async with nats_server(folder) as server:
        registry, placement, gateway = [
            await connect(server.options(user)) for user in ("registry", "placement", "gateway")
        ]
        base_hash = base_model_hash(model)
        await write_directory(registry, base_hash)
        await write_membership(placement, pool_id(base_hash, 16))
        replicas = KillableReplicas({name: environment(name, server, folder, model) for name in NAMES}, folder, run)
        usage = Ledger()
        await registry.consume(USAGE_RECORDED, Service.REGISTRY.value, usage.on_usage)
        patient = {"port": 0, "shed_late": False}  # more streams than rows: all are to wait for theirs
        settings = Settings(nats_url="", nats_user="", nats_password="", gateway_id="gateway-0", **patient)
        assembly = assemble(settings, gateway, SystemClock())
        try:
            await replicas.start(placement)
            for part in assembly.parts:
                await part.start()
            await assembly.following.full.wait()
            url = f"http://127.0.0.1:{assembly.server.port}"
            yield Fleet(url=url, server=server, replicas=replicas, usage=usage)
        finally:
            for part in reversed(assembly.parts):
                await part.stop()
            await replicas.stop()
            for bus in (registry, placement, gateway):
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
        "NATS_PASSWORD": options.password, "SLOTS": 2, "MAX_ROWS": 8, "THREADS": 1,
        "MAX_CONTEXT_TOKENS": CONTEXT_TOKENS,
    }  # fmt: skip
    return {f"LORAFLEET_WORKER_{key}": str(value) for key, value in given.items()}


def question(prompt: int, *, stream: bool = True, **changes: object) -> Body:
    """Every other one is sampled, which must come out the same as well."""
    words = " ".join(f"word{number % (prompt + 3)}" for number in range(prompt + 3))
    asked = {"model": BASE_NAME, "messages": [{"role": "user", "content": words}], "stream": stream, "seed": prompt}
    options = {"stream_options": {"include_usage": True}} if stream else {}
    return {**asked, "temperature": prompt % 2, "max_tokens": 120, **options, **changes}


async def read(client: httpx.AsyncClient, body: Body, pace: Pace) -> Read:
    got, counted = Read(), False
    async for got in growing(client, body):
        if got.text and not counted:
            await pace.count_begun()
            counted = True
    if not counted:
        await pace.count_begun()
    return got


async def growing(client: httpx.AsyncClient, body: Body) -> AsyncIterator[Read]:
    """What has been read so far, each time that there is more of it."""
    if not body["stream"]:
        yield _whole(await client.post("/v1/chat/completions", json=body))
        return
    got = Read()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            yield Read(error=(await response.aread()).decode())
            return
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                got = _after(got, json.loads(line.removeprefix("data: ")))
                yield got


def _after(got: Read, event: Mapping[str, Any]) -> Read:
    """One more event of a stream."""
    if "error" in event:
        return msgspec.structs.replace(got, error=event["error"]["message"])
    if usage := event.get("usage"):
        prompt_tokens, completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return msgspec.structs.replace(got, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    [choice] = event["choices"]
    text = got.text + choice["delta"].get("content", "")
    return msgspec.structs.replace(got, text=text, finish_reason=choice["finish_reason"] or "")


def _whole(response: httpx.Response) -> Read:
    answer = response.json()
    if response.status_code != 200:
        return Read(error=answer["error"]["message"])
    [choice], usage = answer["choices"], answer["usage"]
    return Read(
        text=choice["message"]["content"], finish_reason=choice["finish_reason"],
        prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"],
    )  # fmt: skip


async def read_all(url: str, bodies: Sequence[Body], pace: Pace | None = None) -> list[Read]:
    """All at once, or in step with kills."""
    kept = pace or Pace(killed=KILLS)
    headers = {"authorization": f"Bearer {KEY}"}
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60.0, limits=limits) as client:

        async def one(number: int, body: Body) -> Read:
            await kept.may_begin(number)
            return await read(client, body, kept)

        return list(await asyncio.gather(*(one(number, body) for number, body in enumerate(bodies))))


async def questions(url: str) -> list[Body]:
    """Of every fifth the answer stops somewhere in the middle, inside the text that two tokens or more make up."""
    plain = [question(prompt) for prompt in range(PROMPTS)]
    answers = await read_all(url, plain[::5])
    for at, answer in enumerate(answers):
        plain[5 * at]["stop"] = answer.text[len(answer.text) // 2 :][:3]
    return plain


async def kill_in_turn(replicas: KillableReplicas, pace: Pace, kills: int) -> None:
    for number in range(kills):
        await pace.reach((number + 1) * STREAMS_A_KILL)
        await replicas.kill(NAMES[number % len(NAMES)])
        await pace.count_kill()
        await replicas.all_ready()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


async def test_c33_twenty_kills_under_two_hundred_streams_change_nothing_that_clients_read(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(150), fleet(tmp_path, model) as running:
        asked = await questions(running.url)
        undisturbed = await read_all(running.url, asked)
        before = len(await running.usage.reach(PROMPTS + len(asked[::5])))
        bodies = [_or_whole(asked[at % PROMPTS], whole=at % 5 == 1) for at in range(STREAMS)]
        pace = Pace()
        killing = asyncio.create_task(kill_in_turn(running.replicas, pace, KILLS))
        reads = await read_all(running.url, bodies, pace)
        await killing
        records = (await running.usage.reach(before + STREAMS))[before:]
    whole = [(got, undisturbed[at % PROMPTS]) for at, got in enumerate(reads) if not got.error]
    assert [got for got, _ in whole] == [same for _, same in whole]
    assert {got.error for got in reads if got.error} <= {KILLED_TWICE}
    assert len(whole) >= 0.8 * STREAMS
    good = [record for record in records if record.outcome in ("stop", "length")]
    assert sum(record.attempts > 1 for record in good) >= KILLS, "else nothing was shown"
    assert len(records) == STREAMS
    assert Counter(record.completion_tokens for record in good) == Counter(got.completion_tokens for got, _ in whole)
    assert Counter(record.prompt_tokens for record in good) == Counter(got.prompt_tokens for got, _ in whole)


async def test_an_engine_that_is_given_a_token_less_than_was_produced_is_seen(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(60), fleet(tmp_path, model, serve_forgetfully) as running:
        asked = [question(prompt, max_tokens=400) for prompt in range(AT_ONCE)]
        undisturbed = await read_all(running.url, asked)
        pace = Pace()
        reading = asyncio.create_task(read_all(running.url, asked, pace))
        await pace.reach(AT_ONCE)
        for name in NAMES[:2]:
            await running.replicas.kill(name)
        reads = await reading
    assert any(got != same for got, same in zip(reads, undisturbed, strict=True) if not got.error)


async def test_c82_a_gateway_that_stalls_and_a_bus_that_restarts_lose_and_repeat_no_token_of_64_streams(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(90), fleet(tmp_path, model) as running:
        asked = [question(prompt, max_tokens=400) for prompt in range(64)]
        undisturbed = await read_all(running.url, asked)
        pace = Pace(killed=KILLS)
        reading = asyncio.create_task(read_all(running.url, asked, pace))
        await pace.reach(10)
        threading.Event().wait(STALL_S)  # the fault itself: the gateway's loop stands still
        await running.server.kill()
        coming = asyncio.create_task(read_all(running.url, asked[:8]))
        await running.server.start()
        assert not reading.done()
        reads, late = await reading, await coming
    assert reads == undisturbed
    assert late == undisturbed[:8], "who comes while the bus restarts waits for it"


def serve_forgetfully(environment: Mapping[str, str], log: Path) -> None:
    """A replica whose engine does not get the last token that another one has produced."""
    asks = Running.for_engine

    def forgets(running: Running) -> EngineRequest:
        asked = asks(running)
        kept = asked.prompt_token_ids[: len(asked.prompt_token_ids) - bool(running.continued_from)]
        return msgspec.structs.replace(asked, prompt_token_ids=kept)

    Running.for_engine = forgets  # type: ignore[method-assign]
    serve(environment, log)


def _or_whole(body: Body, *, whole: bool) -> Body:
    """The same question, perhaps asked without a stream."""
    if not whole:
        return body
    return {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}
