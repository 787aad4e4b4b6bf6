"""The engine without a model keeps every promise of the port, and its timing table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from tests.integration.engine_suite import ExactEngineSuite
from tests.integration.engine_tight_suite import TIGHT_KV_TOKENS, ExactTightCases
from tests.support.engine_subject import CHUNK_TOKENS, CONTEXT_TOKENS, SLOTS, Subject, mix_faults, prompt_of
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.token_log import TokenLog, greedy

BASE_HASH = "b" * 64
POLICY = msgspec.structs.replace(
    TimedPolicy.instant(BASE_HASH, slots=SLOTS),
    max_context_tokens=CONTEXT_TOKENS,
    prefill_chunk_tokens=CHUNK_TOKENS,
    eos_one_in=50,
)


async def started(policy: TimedPolicy, folder: Path) -> AsyncIterator[Subject]:
    engine, log = TimedEngine(policy), TokenLog()
    info = await engine.start(log.on_step)
    yield Subject(engine, log, info, lambda seed: write_adapter(folder, RandomAdapter(seed=seed), BASE_HASH))
    assert engine._schedule.broken_invariants() == []
    await engine.close()


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[Subject]:
    async for one in started(POLICY, tmp_path):
        yield one


class TestTightTimedEngine(ExactTightCases):
    @pytest.fixture
    async def subject(self, tmp_path: Path) -> AsyncIterator[Subject]:
        async for one in started(msgspec.structs.replace(POLICY, kv_tokens=TIGHT_KV_TOKENS), tmp_path):
            yield one

    async def test_what_can_never_fit_is_refused_in_one_sentence(self, subject: Subject) -> None:
        assert subject.info.kv_tokens == TIGHT_KV_TOKENS < subject.info.max_context_tokens
        for length, max_tokens in ((10, TIGHT_KV_TOKENS), (TIGHT_KV_TOKENS, 10)):
            request = greedy(f"large-{length}", prompt_of(1, length), max_tokens=max_tokens)
            sentence = await subject.error_of(request) or ""
            assert f"{length + max_tokens} tokens never fit the KV cache of {TIGHT_KV_TOKENS}" in sentence
        fits = greedy("fits", prompt_of(1, 10), max_tokens=TIGHT_KV_TOKENS - 10)
        assert [len(answer) for answer in await subject.answers(fits)] == [TIGHT_KV_TOKENS - 10]


class TestTimedEngine(ExactEngineSuite):
    async def test_the_mix_checker_notices_a_wrong_slot(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        engine = subject.engine
        assert isinstance(engine, TimedEngine)
        honest = engine._digest

        def shifted_in_company(sequence: Sequence) -> str:
            right = honest(sequence)
            return "someone else" if len(engine._schedule.running) > 1 else right

        monkeypatch.setattr(engine, "_digest", shifted_in_company)
        assert len(await mix_faults(subject)) > 20


async def test_time_passes_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def note(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr("services.replica_worker.engine.timed.engine.asyncio.sleep", note)
    policy = TimedPolicy(base_model_hash=BASE_HASH)
    engine, log = TimedEngine(policy), TokenLog()
    await engine.start(log.on_step)
    for name in ("computed", "found"):
        engine.submit(greedy(name, prompt_of(1, 401), max_tokens=3))
        await log.until_ended(name)
    engine.submit(greedy("longer", prompt_of(1, 500), max_tokens=1))
    await log.until_ended("longer")
    await engine.close()
    computed = [0.050 + 401 / 8000, 0.050, 0.050]
    assert slept == pytest.approx([*computed, *[0.050] * 3, 0.050 + 100 / 8000])
