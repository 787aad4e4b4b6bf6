"""Engines for the tests of this folder. They need vLLM's CPU build, so `make vllm` runs them in a venv of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from services.replica_worker.engine.port import EngineFailed, EngineInfo, StepToken
from services.replica_worker.engine.vllm.flags import environment
from services.replica_worker.engine.vllm.policy import VllmPolicy
from tests.support.engine_subject import CHUNK_TOKENS, CONTEXT_TOKENS, MAX_ROWS, SLOTS, Subject
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import tiny_model_once
from tests.support.token_log import TokenLog

POLICY = VllmPolicy(
    scratch_folder=Path("unset"),
    slots=SLOTS,
    max_rows=MAX_ROWS,
    max_context_tokens=CONTEXT_TOKENS,
    prefill_chunk_tokens=CHUNK_TOKENS,
    kv_budget_bytes=64 << 20,
    threads=1,
)
# vLLM reads its variables when it is imported, which the import of its engine does.
os.environ.update(environment(POLICY))
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # tests send functions into vLLM's worker, the product does not

with warnings.catch_warnings(action="ignore"):  # what its import says about itself is not ours to mend
    from services.replica_worker.engine.vllm.core import Core
    from services.replica_worker.engine.vllm.engine import VllmEngine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine belongs to the event loop that it was started on, and outlives a test."""
    for item in items:
        if item.get_closest_marker("asyncio") is not None:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class Workshop:
    """One engine for many tests, as a start takes 20 s; a test that breaks or closes it costs a new one."""

    def __init__(self, folder: Path, policy: VllmPolicy) -> None:
        self._folder = folder
        self._policy = policy
        self._engine: VllmEngine | None = None
        self._info: EngineInfo | None = None
        self.log = TokenLog()

    async def subject(self, adapters: Path) -> Subject:
        engine = self._engine if self._engine is not None and _works(self._engine) else await self._start()
        self.log = TokenLog()
        info = self._info
        assert info is not None
        return Subject(
            engine, self.log, info, lambda seed: write_adapter(adapters, RandomAdapter(seed=seed), info.base_model_hash)
        )

    async def tidy(self) -> None:
        """Nothing of a test is left for the next one."""
        engine = self._engine
        if engine is None or not _works(engine):
            return
        for request_id in list(engine._desk.ledger.live):
            engine.abort(request_id)
        for slot in range(self._policy.slots):
            await engine.clear(slot)
        await core_of(engine).forget_prefixes()

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    async def _start(self) -> VllmEngine:
        await self.close()
        self._engine = VllmEngine(self._folder, self._policy)
        self._info = await self._engine.start(self._on_step)
        return self._engine

    def _on_step(self, tokens: Sequence[StepToken]) -> None:
        self.log.on_step(tokens)


def core_of(engine: VllmEngine) -> Core:
    assert engine._parts is not None
    return engine._parts.core


def _works(engine: VllmEngine) -> bool:
    try:
        engine.load_figures()
    except EngineFailed:
        return False
    return True


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture
def policy(tmp_path: Path) -> VllmPolicy:
    return msgspec.structs.replace(POLICY, scratch_folder=tmp_path / "scratch")


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["bfloat16", "float32"])
async def workshop(
    request: pytest.FixtureRequest, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Workshop]:
    scratch = tmp_path_factory.mktemp("scratch") / "prepared"
    built = Workshop(tiny_folder, msgspec.structs.replace(POLICY, scratch_folder=scratch, dtype=request.param))
    yield built
    await built.close()


@pytest_asyncio.fixture(loop_scope="session")
async def subject(workshop: Workshop, tmp_path: Path) -> AsyncIterator[Subject]:
    yield await workshop.subject(tmp_path)
    await workshop.tidy()
