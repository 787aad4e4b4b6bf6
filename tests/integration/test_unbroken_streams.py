"""Whatever is killed, stopped or held up under running streams, clients read what they would have read without it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

import httpx
import msgspec
import pytest

from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.requests.running import Running
from tests.support.answers_under_way import Giver
from tests.support.growing_answers import Body, Read, growing
from tests.support.killable_replicas import serve
from tests.support.tiny_model import tiny_model_once
from tests.support.unbroken_fleet import BASE_NAME, KEY, Fleet, fleet

STREAMS, KILLS, AT_ONCE = 200, 20, 16
STREAMS_A_KILL = STREAMS // KILLS
PROMPTS = 25
STALL_S = 5.0
Within = Callable[[float], AbstractAsyncContextManager[None]]


@dataclass(kw_only=True)
class Begun:
    """Counts the streams that have text, or are over."""

    count: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def one_more(self) -> None:
        async with self.news:
            self.count += 1
            self.news.notify_all()

    async def reach(self, count: int) -> None:
        """Returns once so many streams have begun."""
        async with self.news:
            await self.news.wait_for(lambda: self.count >= count)


def question(prompt: int, *, stream: bool = True, **changes: object) -> Body:
    """Every other one is sampled, which must come out the same as well."""
    words = " ".join(f"word{number % (prompt + 3)}" for number in range(prompt + 3))
    asked = {"model": BASE_NAME, "messages": [{"role": "user", "content": words}], "stream": stream, "seed": prompt}
    options = {"stream_options": {"include_usage": True}} if stream else {}
    return {**asked, "temperature": prompt % 2, "max_tokens": 120, **options, **changes}


async def read(client: httpx.AsyncClient, body: Body, begun: Begun) -> Read:
    got, counted = Read(), False
    async for got in growing(client, body):
        if got.text and not counted:
            await begun.one_more()
            counted = True
    if not counted:
        await begun.one_more()
    return got


def client_of(url: str) -> httpx.AsyncClient:
    headers, limits = {"authorization": f"Bearer {KEY}"}, httpx.Limits(max_connections=64)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60.0, limits=limits)


async def read_all(url: str, bodies: Sequence[Body], begun: Begun | None = None) -> list[Read]:
    """All at once."""
    counting = begun or Begun()
    async with client_of(url) as client:
        return list(await asyncio.gather(*(read(client, body, counting) for body in bodies)))


async def questions(url: str) -> list[Body]:
    """Of every fifth the answer stops somewhere in the middle, inside the text that two tokens or more make up."""
    plain = [question(prompt) for prompt in range(PROMPTS)]
    answers = await read_all(url, plain[::5])
    for at, answer in enumerate(answers):
        plain[5 * at]["stop"] = answer.text[len(answer.text) // 2 :][:3]
    return plain


class Rounds:
    """Each has one kill and streams of its own: half of them are begun before it, the others right after it."""

    def __init__(self, running: Fleet, client: httpx.AsyncClient, bodies: Iterator[Body]) -> None:
        self._running = running
        self._client = client
        self._bodies = bodies
        self.reads: list[Read] = []
        self.interrupted: list[set[str]] = []
        """The calls that each kill interrupted in the middle of their answers. Nothing was killed in vain: what had no
        stream any more when it died is left out, and its round held once more."""

    async def kill(self, times: int) -> None:
        while len(self.interrupted) < times:
            killed = await self._one(1 + 2 * len(self.interrupted))
            if went_on := self._running.answers.went_on_without(killed):
                self.interrupted.append(went_on)

    async def _one(self, tokens: int) -> Giver:
        """Kills whoever has given so many tokens of an answer first, and is still at it; returns who that was."""
        await self._running.replicas.all_ready()
        async with asyncio.TaskGroup() as reading:
            first = reading.create_task(self._read(STREAMS_A_KILL // 2))
            killed = await self._running.answers.one_reaches(tokens)
            await self._running.replicas.kill(killed[0])
            then = reading.create_task(self._read(STREAMS_A_KILL // 2))
        self.reads += [*first.result(), *then.result()]
        await self._running.answers.all_over()
        return killed

    async def _read(self, count: int) -> list[Read]:
        bodies = list(islice(self._bodies, count))
        return await asyncio.gather(*(read(self._client, body, Begun()) for body in bodies))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


async def test_c33_twenty_kills_under_two_hundred_streams_change_nothing_that_clients_read(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(150), fleet(tmp_path, model) as running, client_of(running.url) as client:
        asked = await questions(running.url)
        undisturbed = await read_all(running.url, asked)
        before = len(await running.usage.reach(PROMPTS + len(asked[::5])))
        rounds = Rounds(running, client, (_or_whole(asked[at % PROMPTS], whole=at % 5 == 1) for at in count()))
        await rounds.kill(KILLS)
        reads = rounds.reads
        records = (await running.usage.reach(before + len(reads)))[before:]
    assert len(reads) >= STREAMS
    assert reads == [undisturbed[at % PROMPTS] for at in range(len(reads))]
    attempts = {record.call_id: record.attempts for record in records}
    assert [min(attempts[call_id] for call_id in calls) > 1 for calls in rounds.interrupted] == [True] * KILLS
    good = [record for record in records if record.outcome in ("stop", "length")]
    assert len(good) == len(records) == len(reads)
    assert sum(record.attempts > 1 for record in good) >= KILLS
    assert Counter(record.completion_tokens for record in good) == Counter(got.completion_tokens for got in reads)
    assert Counter(record.prompt_tokens for record in good) == Counter(got.prompt_tokens for got in reads)


async def test_an_engine_that_is_given_a_token_less_than_was_produced_is_seen(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(60), fleet(tmp_path, model, serve_forgetfully) as running:
        asked = [question(prompt, temperature=1) for prompt in range(AT_ONCE)]
        undisturbed = await read_all(running.url, asked)
        reading = asyncio.create_task(read_all(running.url, asked))
        killed = await running.answers.one_reaches(1)
        await running.replicas.kill(killed[0])
        reads = await reading
        assert running.answers.went_on_without(killed)
    assert reads != undisturbed
    assert [got.error for got in reads] == [""] * AT_ONCE


async def test_c82_a_gateway_that_stalls_and_a_bus_that_restarts_lose_and_repeat_no_token_of_64_streams(
    tmp_path: Path, model: Path, within: Within
) -> None:
    async with within(90), fleet(tmp_path, model) as running:
        asked = [question(at % PROMPTS, seed=at, max_tokens=400) for at in range(64)]
        undisturbed = await read_all(running.url, asked)
        assert all(got.completion_tokens > 0 for got in undisturbed), "64 that were refused would be alike as well"
        begun = Begun()
        reading = asyncio.create_task(read_all(running.url, asked, begun))
        await begun.reach(10)
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
