"""The reference engine's tokens are the same whatever its KV cache holds, and however small it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from services.replica_worker.engine import sequence
from services.replica_worker.engine.blocks import PrefixKey, extend_keys
from services.replica_worker.engine.torch.cache import bytes_per_token
from services.replica_worker.engine.torch.config import read_config
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from tests.integration.engine_exact_suite import ExactCases
from tests.integration.engine_prefix_suite import asking
from tests.integration.engine_tight_suite import TIGHT_KV_TOKENS, ExactTightCases
from tests.support.engine_subject import CHUNK_TOKENS, CONTEXT_TOKENS, MAX_ROWS, SLOTS, Subject
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import tiny_model_once
from tests.support.token_log import TokenLog

POLICY = TorchPolicy(
    slots=SLOTS,
    max_rows=MAX_ROWS,
    max_context_tokens=CONTEXT_TOKENS,
    prefill_chunk_tokens=CHUNK_TOKENS,
    threads=1,
)
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture(params=DTYPES)
def policy(request: pytest.FixtureRequest) -> TorchPolicy:
    return msgspec.structs.replace(POLICY, dtype=request.param)


async def started(folder: Path, policy: TorchPolicy, adapters: Path) -> AsyncIterator[Subject]:
    engine, log = TorchEngine(folder, policy), TokenLog()
    info = await engine.start(log.on_step)
    yield Subject(
        engine, log, info, lambda seed: write_adapter(adapters, RandomAdapter(seed=seed), info.base_model_hash)
    )
    parts = engine._parts
    await engine.close()
    assert parts is not None
    assert parts.stepper.schedule.broken_invariants() == []


def without_digest(keys: list[PrefixKey], digest: str, salt: str, token_ids: Sequence[int]) -> None:
    extend_keys(keys, "", salt, token_ids)


class TestTorchCache(ExactCases):
    @pytest.fixture
    async def subject(self, tiny_folder: Path, policy: TorchPolicy, tmp_path: Path) -> AsyncIterator[Subject]:
        async for one in started(tiny_folder, policy, tmp_path):
            yield one

    async def test_c02_a_key_without_the_digest_is_noticed(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await subject.put(0, seed=1)
        (cold,) = await subject.answers(asking("cold", 0, salt="cold"))
        monkeypatch.setattr(sequence, "extend_keys", without_digest)
        for version in (0, 1):
            await subject.put(0, seed=version)
            (answer,) = await subject.answers(asking(f"version {version}", 0))
        assert subject.log.tokens["version 1"][0].cached_tokens > 0
        assert answer != cold


class TestTightTorchCache(ExactTightCases):
    @pytest.fixture
    async def subject(self, tiny_folder: Path, policy: TorchPolicy, tmp_path: Path) -> AsyncIterator[Subject]:
        kv_bytes = TIGHT_KV_TOKENS * bytes_per_token(read_config(tiny_folder), DTYPES[policy.dtype])
        tight = msgspec.structs.replace(policy, kv_bytes=kv_bytes, max_context_tokens=TIGHT_KV_TOKENS)
        async for one in started(tiny_folder, tight, tmp_path):
            assert one.info.kv_tokens == TIGHT_KV_TOKENS
            yield one
