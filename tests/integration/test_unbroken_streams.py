"""Whatever is killed, stopped or held up under running streams, clients read what they would have read without it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import pytest

from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.requests.running import Running
from tests.support.growing_answers import Body, Read, growing
from tests.support.killable_replicas import KillableReplicas, serve
from tests.support.tiny_model import tiny_model_once
from tests.support.unbroken_fleet import BASE_NAME, KEY, NAMES, fleet

STREAMS, KILLS, AT_ONCE = 200, 20, 24
STREAMS_A_KILL = STREAMS // KILLS
PROMPTS = 25
KILLED_TWICE = "2 replicas were lost while they worked on this request, so no other is asked."
STALL_S = 5.0
Within = Callable[[float], AbstractAsyncContextManager[None]]


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
        asked = [question(at % PROMPTS, seed=at, max_tokens=400) for at in range(64)]
        undisturbed = await read_all(running.url, asked)
        assert all(got.completion_tokens > 0 for got in undisturbed), "64 that were refused would be alike as well"
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
