"""A replica with one adapter merged into its base's weights: compared before it serves, and serving nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.__main__ import build_merged
from services.replica_worker.core.merged import allowed
from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.settings import Settings
from shared.base_model import base_model_hash
from shared.contracts.catalog import COMPLETE, EVALUATE, LOAD, STATE, UNLOAD
from shared.merging import terms
from shared.messages.completions import CasePrompt, Complete
from shared.messages.desired import AdapterRecord
from shared.messages.generation import ChatMessage
from shared.messages.operations import AskState, EvaluateAdapter, LoadAdapter, UnloadAdapter
from shared.messages.pools import is_merged
from tests.support.random_adapter import ALL_TARGETS, RandomAdapter, write_adapter
from tests.support.replica import REPLICA_ID, Rig, refused, rig
from tests.support.tiny_model import tiny_model_once


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


async def register(place: Rig, seed: int, rank: int = 8) -> AdapterRecord:
    path, spec = write_adapter(place.folder, RandomAdapter(seed=seed, rank=rank), place.base_hash)
    return await place.register(
        spec.adapter_id, path.read_bytes(), rank=spec.rank, alpha=spec.alpha, target_modules=ALL_TARGETS
    )


def settings_of(folder: Path, model: Path, dtype: str = "float32") -> Settings:
    return Settings(
        replica_id=REPLICA_ID, model_folder=model, store_url="file:///unused", cache_folder=folder / "cache",
        engine="torch", slots=4, max_rows=8, max_context_tokens=256, threads=1, dtype=dtype,
        ram_budget_bytes=64 << 20, disk_budget_bytes=64 << 20, merged="adapter-1",
    )  # fmt: skip


async def with_merge(folder: Path, model: Path, dtype: str = "float32", rank: int = 8) -> tuple[Rig, AdapterRecord]:
    """Not started yet."""
    settings = settings_of(folder, model, dtype)
    placed = Rig(folder, model, settings, None, base_model_hash(model))  # type: ignore[arg-type]
    record = await register(placed, 1, rank)
    placed.engine, plan = build_merged(settings, record)
    placed.merge_in(plan)
    return placed, record


@asynccontextmanager
async def merged(
    folder: Path, model: Path, dtype: str = "float32", rank: int = 8
) -> AsyncIterator[tuple[Rig, AdapterRecord]]:
    placed, record = await with_merge(folder, model, dtype, rank)
    await placed.start()
    try:
        yield placed, record
        await placed.settled()
        placed.assert_sound()
    finally:
        await placed.stop()


async def tokens(place: Rig, request_id: str, record: AdapterRecord) -> tuple[int, ...]:
    request = place.request(request_id, record, max_tokens=8)
    greedy = msgspec.structs.replace(request.sampling, temperature=0.0)
    heard = await place.caller.run(msgspec.structs.replace(request, sampling=greedy))
    assert heard.finish is not None, heard.answers
    assert heard.accepted is not None
    assert (heard.accepted.adapter_id, heard.accepted.digest) == (record.adapter_id, record.digest)
    assert heard.accepted.tier == ("gpu" if place.merge else "remote")
    return heard.token_ids


async def test_it_answers_as_an_unmerged_replica_does(tmp_path: Path, model: Path) -> None:
    policy = TorchPolicy(slots=4, max_rows=8, max_context_tokens=256, dtype="float32", threads=1)
    own = {"ram_budget_bytes": 64 << 20, "disk_budget_bytes": 64 << 20, "max_context_tokens": 256}
    (tmp_path / "plain").mkdir()
    (tmp_path / "merged").mkdir()
    async with rig(
        tmp_path / "plain", model, engine=TorchEngine(model, policy), base_hash=base_model_hash(model), **own
    ) as plain:
        expected = await tokens(plain, "plain", await register(plain, 1))
    async with merged(tmp_path / "merged", model) as (replica, record):
        assert await tokens(replica, "merged", record) == expected
        told = json.loads((replica.cache / "merged" / "merged.json").read_text())
        assert (told["digest"], told["base_model_hash"]) == (record.digest, replica.base_hash)


async def test_it_is_a_member_of_its_own_pool_and_holds_its_adapter_in_no_slot(tmp_path: Path, model: Path) -> None:
    async with merged(tmp_path, model) as (replica, record):
        report = replica.replica.reporter.report()
        assert report.ready
        assert is_merged(report.pool_id)
        assert (report.slots, report.slots_busy, report.golden) == (0, 0, "right")
        state = await replica.registry.ask(STATE, AskState(), REPLICA_ID, timeout_s=5)
        assert state.gpu_adapters == (record.adapter_id,)
        assert replica.replica.loader.tier_of(record.key) == "gpu"


async def test_it_refuses_another_adapter_and_the_base_and_sends_them_elsewhere(tmp_path: Path, model: Path) -> None:
    async with merged(tmp_path, model) as (replica, record):
        other = await register(replica, 2)
        asked = {
            "another adapter": replica.request("r1", other),
            "the base": replica.request("r2"),
            "the same id with other bytes": replica.request("r3", record, digest=other.digest),
            "the pool of everybody": replica.request("r4", record, pool_id=record.pool_id),
        }
        for name, request in asked.items():
            refusal = refused(await replica.caller.run(request))
            assert (refusal.code, refusal.elsewhere) == ("wrong_pool", True), name


def prompt(replica: Rig, record: AdapterRecord | None) -> Complete:
    case = CasePrompt(case=0, messages=(ChatMessage(role="user", content="hello"),), max_tokens=8)
    return Complete(base_model_hash=replica.base_hash, record=record, prompts=(case,))


async def test_operations_leave_it_as_it_is(tmp_path: Path, model: Path) -> None:
    async with merged(tmp_path, model) as (replica, record):
        other = await register(replica, 2)
        before = await tokens(replica, "before", record)
        results = {}
        for each in (record, other):
            for channel, ask in ((LOAD, LoadAdapter), (UNLOAD, UnloadAdapter)):
                question = ask(adapter_id=each.adapter_id, digest=each.digest)
                results[channel.name, each is record] = await replica.registry.ask(
                    channel, question, REPLICA_ID, timeout_s=5
                )
        assert results[LOAD.name, True].ok
        assert not results[UNLOAD.name, True].ok
        assert not results[LOAD.name, False].ok
        assert "alone" in results[LOAD.name, False].reason
        with pytest.raises(Exception, match="alone"):
            await replica.registry.ask(EVALUATE, EvaluateAdapter(record=other), REPLICA_ID, timeout_s=5)
        for refused_one in (other, None):
            with pytest.raises(Exception, match="alone"):
                await replica.registry.ask(COMPLETE, prompt(replica, refused_one), REPLICA_ID, timeout_s=5)
        completed = await replica.registry.ask(COMPLETE, prompt(replica, record), REPLICA_ID, timeout_s=5)
        assert (completed.outputs[0].error, completed.outputs[0].tokens) == ("", 8)
        assert await tokens(replica, "after", record) == before


async def test_what_is_in_the_way_of_a_merge_is_written_anew(tmp_path: Path, model: Path) -> None:
    cache = tmp_path / "cache"
    for stale in (cache / "merged", cache / ".merged.of-a-killed-process"):
        stale.mkdir(parents=True)
        (stale / "model.safetensors").write_bytes(b"half of another one")
    async with merged(tmp_path, model, dtype="bfloat16") as (replica, record):
        assert await tokens(replica, "r1", record)
        assert [each.name for each in cache.iterdir() if each.is_dir()] == ["merged"]


async def test_a_rank_above_the_limit_of_slots_is_merged_all_the_same(tmp_path: Path, model: Path) -> None:
    async with merged(tmp_path, model, rank=64) as (replica, record):
        assert record.rank > replica.settings.rank_limit
        assert await tokens(replica, "r1", record)


async def fails_to_start(placed: Rig, reason: str) -> None:
    await placed.residency.start()
    try:
        with pytest.raises(EngineFailed, match=reason):
            await placed.replica.start()
        assert not placed.replica.standing.ready
        assert reason in placed.replica.standing.not_ready
        assert not placed.replica.reporter.report().ready
    finally:
        await placed.residency.stop()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_a_planted_scale_is_found_and_the_replica_is_never_ready(
    tmp_path: Path, model: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where weights are merged: the unmerged engine it is compared with applies the right one."""
    right = terms.scale_of
    monkeypatch.setattr("shared.merging.pairs.scale_of", lambda spec, module: 2 * right(spec, module))
    placed, _ = await with_merge(tmp_path, model, dtype)
    await fails_to_start(placed, "merged wrongly: the merged weights do not answer like base and adapter")


async def test_an_adapter_whose_file_is_gone_is_said_to_be(tmp_path: Path, model: Path) -> None:
    placed, record = await with_merge(tmp_path, model)
    placed.stored(record).unlink()
    await fails_to_start(placed, "is not in the store")


def test_the_tolerance_is_far_below_what_it_must_find() -> None:
    assert allowed(0.0, "float32") < 0.01
    assert all(allowed(shift, "bfloat16") < shift / 2 for shift in (1.0, 10.0))
