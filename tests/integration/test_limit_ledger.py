"""The script that hands out limits, in a real Valkey: what it does is what the paper says, and at one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from services.gateway.core.allowance import Ask, Grant, PlacesAsk, WindowAsk
from services.gateway.io.limits_redis import LedgerAway, RedisLedger, keys
from tests.support.paper_ledger import PaperLedger
from tests.support.valkey_server import ValkeyServer

pytestmark = pytest.mark.deadline(60)


counts = st.integers(0, 40)
windows = st.none() | st.builds(
    WindowAsk, limit=st.integers(1, 60), want=counts, least=st.integers(0, 5),
    add=st.dictionaries(st.integers(-70, 3), st.integers(-3, 9), max_size=4),
)  # fmt: skip
places = st.none() | st.builds(PlacesAsk, limit=st.integers(1, 9), used=st.integers(0, 5), want=st.integers(0, 12))
dialogues = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.sampled_from("gh"), windows, windows, places), min_size=1, max_size=25
)


async def test_the_script_does_what_the_paper_says(valkey: ValkeyServer) -> None:
    ledger = RedisLedger(valkey.url, 10.0)
    [met] = await ledger.ask([Ask(subject="", gateway="g", epoch="")])
    dialogue = iter(range(10_000))
    loop = asyncio.get_running_loop()

    async def answers(asks: Sequence[Ask]) -> list[Grant]:
        return await ledger.ask(asks)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(said=dialogues)
    def compare(said: list[tuple[float, str, WindowAsk | None, WindowAsk | None, PlacesAsk | None]]) -> None:
        paper, subject, now_s = PaperLedger(met.epoch), f"tenant t{next(dialogue)}", 2_000_000.0
        asks = []
        for passes_s, gateway, requests, tokens, streams in said:
            now_s += passes_s
            asks.append(
                Ask(
                    subject=subject,
                    gateway=gateway,
                    epoch=met.epoch,
                    places_ms=5_000,
                    now_ms=int(now_s * 1000),
                    requests=shifted(requests, int(now_s)),
                    tokens=shifted(tokens, int(now_s)),
                    streams=streams,
                )
            )
        real = asyncio.run_coroutine_threadsafe(answers(asks), loop).result()
        assert real == [paper.answer(ask) for ask in asks]

    await asyncio.to_thread(compare)
    await ledger.close()


def shifted(ask: WindowAsk | None, slot: int) -> WindowAsk | None:
    """Its corrections are of slots around this one."""
    if ask is None:
        return None
    return msgspec.structs.replace(ask, add={slot + at: count for at, count in ask.add.items()})


ASKERS = 10
"""At each ledger."""


async def granted(ledgers: Sequence[RedisLedger], epoch: str) -> int:
    """How much of a limit of 20 they get who all ask for 5 at once."""
    want = WindowAsk(limit=20, want=5, least=5)
    ask = Ask(subject="tenant acme", gateway="g", epoch=epoch, places_ms=5_000, requests=want)
    answers = await asyncio.gather(*(ledger.ask([ask]) for ledger in ledgers for _ in range(ASKERS)))
    return sum(answer.requests.granted for [answer] in answers if answer.requests is not None)


class Careless(RedisLedger):
    """Looks, and writes once all have looked."""

    def __init__(self, url: str, all_have_looked: asyncio.Barrier) -> None:
        super().__init__(url, 10.0)
        self._own = Redis.from_url(url)
        self._all_have_looked = all_have_looked

    async def ask(self, asks: Sequence[Ask]) -> list[Grant]:
        of_requests, want = keys(asks[0].subject)[1], asks[0].requests
        if want is None:
            return await super().ask(asks)
        used = sum(map(int, await self._own.hvals(of_requests)))
        room = max(0, min(want.want, want.limit - used))
        await self._all_have_looked.wait()
        await self._own.hincrby(of_requests, "1", room)
        paper = PaperLedger(asks[0].epoch)
        answer = paper.answer(
            msgspec.structs.replace(asks[0], now_ms=0, requests=WindowAsk(limit=room, want=room, least=0))
        )
        return [answer]

    async def close(self) -> None:
        await self._own.aclose()
        await super().close()


@pytest.mark.parametrize("kind", ["atomic", "careless"])
async def test_many_at_once_get_no_more_than_there_is(valkey: ValkeyServer, kind: str) -> None:
    """Also shows that the check can fail: who looks first and writes then, hands out too much."""
    all_have_looked = asyncio.Barrier(2 * ASKERS)
    async with AsyncExitStack() as open_ones:
        ledgers = [
            RedisLedger(valkey.url, 10.0) if kind == "atomic" else Careless(valkey.url, all_have_looked)
            for _ in range(2)
        ]
        for ledger in ledgers:
            open_ones.push_async_callback(ledger.close)
        [met] = await ledgers[0].ask([Ask(subject="", gateway="g", epoch="")])
        total = await granted(ledgers, met.epoch)
    assert total == (20 if kind == "atomic" else 2 * ASKERS * 5)


async def test_what_cannot_be_asked_is_said(tmp_path: Path) -> None:
    ledger = RedisLedger("redis://127.0.0.1:1/0", 1.0)
    with pytest.raises(LedgerAway, match="connecting to"):
        await ledger.ask([Ask(subject="", gateway="g", epoch="")])
    await ledger.close()
