"""A real worker over the timed engine, whose times are known, is calibrated by what its requests see."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from loadtest.calibration.company import undisturbed_s
from loadtest.calibration.fitting import decodings, fit_steps
from loadtest.calibration.overheads import fit_overheads
from loadtest.calibration.prompts import fit_prompts
from loadtest.calibration.seen import Seen
from loadtest.one_replica import Ask, Told
from loadtest.virtual_time import run_virtually
from services.replica_worker.text.tokenizer import Tokenizer
from tests.simulation.schedule_world import STEP_S, world
from tests.support.tiny_model import tiny_model_once

CHUNK_TOKENS, PROMPT_TOKENS_PER_S = 512, 8_000.0
"""Of the timed engine."""
BEGIN_S = 5.0
"""By then the worker has started, and measured its base."""
ADAPTERS = 4
LONE_WORDS, LONE_EACH = (10, 60, 120, 220), 3
"""Of questions that are asked after everything else, each alone."""


def _seen(folder: Path, model_folder: Path, requests: int, rate_per_s: float) -> list[Seen]:
    """Each adapter is asked for once before what is looked at begins, so that all are in slots. Last come those that
    are asked alone."""
    draw, at_s, asked = random.Random(1), BEGIN_S, []
    for number in range(requests):
        at_s += 1.0 if number < ADAPTERS else draw.expovariate(rate_per_s)
        asked.append((at_s, number % ADAPTERS, f"{number:04d} " + "word " * draw.randint(1, 220), draw.randint(8, 40)))
    for number, words in enumerate(LONE_WORDS * LONE_EACH):
        asked.append((at_s + 60.0 + 2.0 * number, number % ADAPTERS, f"alone {number:04d} " + "word " * words, 8))

    async def ask() -> list[Told]:
        async with world(folder, model_folder, ADAPTERS, slots=8, max_rows=32) as (one, records):

            async def one_of(number: int, at_s: float, adapter: int, words: str, tokens: int) -> Told:
                await one.clock.sleep_s(at_s - one.clock.now_s())
                ask = Ask(request_id=f"r{number}", tenant_id="acme", max_tokens=tokens, record=records[adapter],
                          prompt=words)  # fmt: skip
                return await one.run(ask)

            return list(await asyncio.gather(*(one_of(at, *each) for at, each in enumerate(asked))))

    tokenizer = Tokenizer.from_folder(model_folder)
    return [_as_seen(told, tokenizer) for told in run_virtually(ask())[ADAPTERS:]]


def _as_seen(told: Told, tokenizer: Tokenizer) -> Seen:
    assert told.ended_at_s is not None, "it is over"
    prompt = len(tokenizer.encode_chat([{"role": "user", "content": told.ask.prompt}]))
    return Seen(
        request_id=told.ask.request_id, adapter=0, planned_s=told.sent_at_s, sent_s=told.sent_at_s,
        first_s=told.first_at_s, ended_s=told.ended_at_s, outcome=told.failure or "ok", tier=told.tier,
        replica="replica-1", prompt_tokens=prompt, tokens=told.tokens, attempts=1,
    )  # fmt: skip


def test_a_replica_with_known_times_gets_them_back(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = _seen(tmp_path, tiny_model_once(tmp_path_factory), requests=160, rate_per_s=0.8)
    prompts = fit_prompts(seen[-len(LONE_WORDS) * LONE_EACH :], CHUNK_TOKENS)
    table = fit_steps(decodings(seen, CHUNK_TOKENS), prompts).table(CHUNK_TOKENS)
    for rows in (1, 2, 3):
        assert table.step_s(rows, 0, rows) == pytest.approx(STEP_S, rel=0.1)
        assert table.step_s(rows, 400, rows) == pytest.approx(STEP_S + 400 / PROMPT_TOKENS_PER_S, rel=0.1)
    assert table.spread < 0.1
    assert fit_overheads(undisturbed_s(seen, table, CHUNK_TOKENS)).mean_s < 0.1 * STEP_S
