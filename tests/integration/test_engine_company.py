"""One adapter in a slot of its own among 31 others, each in its own: not a token of it may change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.port import AdapterSpec, EngineRequest
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from tests.support.engine_subject import Subject, prompt_of, sampled
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import tiny_model_once
from tests.support.token_log import TokenLog, greedy

ADAPTERS = 32
RANKS = (4, 8, 16, 64)


@pytest.fixture(params=["bfloat16", "float32"])
async def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> AsyncIterator[Subject]:
    """32 adapters of four ranks, one in every slot."""
    policy = TorchPolicy(
        slots=ADAPTERS, rank_limit=64, max_rows=ADAPTERS, max_context_tokens=256, dtype=request.param, threads=1
    )
    engine, log = TorchEngine(tiny_model_once(tmp_path_factory), policy), TokenLog()
    info = await engine.start(log.on_step)

    def write(seed: int) -> tuple[Path, AdapterSpec]:
        adapter = RandomAdapter(seed=seed, rank=RANKS[seed % len(RANKS)], use_rslora=seed % 3 == 0)
        return write_adapter(tmp_path, adapter, info.base_model_hash)

    made = Subject(engine, log, info, write)
    for slot in range(ADAPTERS):
        await made.put(slot, seed=slot)
    yield made
    await engine.close()


def asked(name: str, slot: int) -> EngineRequest:
    """The same prompt for all, so that nothing but the adapter makes the difference; never from the cache."""
    return msgspec.structs.replace(
        greedy(f"{name}-{slot}", prompt_of(5, 40), slot=slot, max_tokens=16), cache_salt=name
    )


async def test_every_adapter_answers_alone_as_among_31_others(subject: Subject) -> None:
    alone = [(await subject.answers(asked("alone", slot)))[0] for slot in range(ADAPTERS)]
    assert len({tuple(answer) for answer in alone}) > ADAPTERS * 3 // 4, "too alike to tell one adapter from another"
    assert await subject.answers(*(asked("together", slot) for slot in range(ADAPTERS))) == alone


async def test_samples_of_one_prompt_are_those_of_their_seeds_whatever_their_company(subject: Subject) -> None:
    """What a client would call n = 8: eight sequences on one slot, among 24 on others."""

    def several(name: str, seed: int) -> EngineRequest:
        return sampled(f"{name}-{seed}", seed, slot=3, prompt_token_ids=prompt_of(5, 40), cache_salt=f"{name}-{seed}")

    alone = [(await subject.answers(several("alone", seed)))[0] for seed in range(8)]
    assert len({tuple(answer) for answer in alone}) == 8
    others = [asked("others", slot) for slot in range(4, 28)]
    together = await subject.answers(*(several("together", seed) for seed in range(8)), *others)
    assert together[:8] == alone


async def test_leavers_change_nothing_for_those_who_stay(subject: Subject) -> None:
    """Every second one leaves after its first token, in the middle of everybody's answers."""
    alone = [(await subject.answers(asked("alone", slot)))[0] for slot in range(0, ADAPTERS, 2)]
    for slot in range(ADAPTERS):
        subject.engine.submit(asked("mixed", slot))
    for slot in range(ADAPTERS):
        await subject.log.until_tokens(f"mixed-{slot}", 1)
    for slot in range(1, ADAPTERS, 2):
        subject.engine.abort(f"mixed-{slot}")
    stayed = [f"mixed-{slot}" for slot in range(0, ADAPTERS, 2)]
    await subject.log.until_ended(*stayed)
    assert [subject.log.token_ids(name) for name in stayed] == alone
