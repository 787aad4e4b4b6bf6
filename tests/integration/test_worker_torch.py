"""A replica over the reference engine: the real model, the real weights, more adapters than slots."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from loadtest.one_replica import Ask, OneReplica, Plan
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from shared.base_model import base_model_hash
from shared.contracts.catalog import EVALUATE
from shared.messages.desired import AdapterRecord
from shared.messages.operations import EvaluateAdapter, Evaluation
from shared.runtime.clock import SystemClock
from tests.support.random_adapter import ALL_TARGETS, RandomAdapter, write_adapter
from tests.support.replica import REPLICA_ID, Rig, refused, rig
from tests.support.replica_operations import load, unload
from tests.support.tiny_model import tiny_model_once


@pytest.fixture
async def replica(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    model = tiny_model_once(tmp_path_factory)
    policy = TorchPolicy(slots=4, max_rows=8, max_context_tokens=256, dtype="float32", threads=1)
    settings = {"ram_budget_bytes": 64 << 20, "disk_budget_bytes": 64 << 20, "max_context_tokens": 256}
    engine = TorchEngine(model, policy)
    async with rig(tmp_path, model, engine=engine, base_hash=base_model_hash(model), **settings) as built:
        yield built
        await built.settled()
        built.assert_sound()


async def register(replica: Rig, seed: int, std: float = 0.15) -> AdapterRecord:
    path, spec = write_adapter(replica.folder, RandomAdapter(seed=seed, std=std), replica.base_hash)
    return await replica.register(
        spec.adapter_id, path.read_bytes(), rank=spec.rank, alpha=spec.alpha, target_modules=ALL_TARGETS
    )


async def tokens(replica: Rig, request_id: str, record: AdapterRecord | None) -> tuple[int, ...]:
    request = replica.request(request_id, record, max_tokens=8)
    greedy = msgspec.structs.replace(request.sampling, temperature=0.0)
    heard = await replica.caller.run(msgspec.structs.replace(request, sampling=greedy))
    assert heard.finish is not None, heard.answers
    assert heard.finish.error is None
    return heard.token_ids


async def evaluate(replica: Rig, record: AdapterRecord) -> Evaluation:
    return await replica.registry.ask(EVALUATE, EvaluateAdapter(record=record), REPLICA_ID, timeout_s=30)


async def test_c04_c21_twelve_adapters_and_the_base_through_four_slots_answer_as_if_alone(replica: Rig) -> None:
    records = [await register(replica, seed) for seed in range(1, 13)]
    base = await tokens(replica, "base-alone", None)
    alone = {record.adapter_id: await tokens(replica, f"alone-{record.adapter_id}", record) for record in records}
    assert len({base, *alone.values()}) == 13
    calls: list[AdapterRecord | None] = [*records, *records, None, None]
    random.Random(21).shuffle(calls)
    mixed = await asyncio.gather(*(tokens(replica, f"mixed-{at}", record) for at, record in enumerate(calls)))
    assert mixed == [base if record is None else alone[record.adapter_id] for record in calls]


async def test_the_steps_of_a_real_model_show_what_a_full_batch_could_do(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tiny_model_once(tmp_path_factory)
    policy = TorchPolicy(slots=1, max_rows=8, max_context_tokens=256, dtype="float32", threads=1)
    settings = {"slots": 1, "max_rows": 8, "max_context_tokens": 256}
    plan = Plan(folder=tmp_path, model_folder=model, base_model_hash=base_model_hash(model), settings=settings)
    async with OneReplica(plan, TorchEngine(model, policy), SystemClock()).running() as one:
        assert one.replica.reporter.report().capacity_tokens_per_s == 0.0
        asks = [Ask(request_id=f"r{at}", tenant_id="acme", max_tokens=64) for at in range(2)]
        told = await asyncio.gather(*(one.run(ask) for ask in asks))
        report = one.replica.reporter.report()
    assert [each.failure for each in told] == ["", ""]
    assert report.capacity_tokens_per_s > report.tokens_per_s > 0.0


async def test_c08_an_adapter_of_zeros_fails_its_evaluation(replica: Rig) -> None:
    found = await evaluate(replica, await register(replica, 3, std=0.0))
    assert (found.passed, found.reason.split(":")[0], found.largest_logprob_change) == (False, "no effect", 0.0)


async def test_a_file_that_the_engine_cannot_apply_is_refused_with_its_reason(replica: Rig) -> None:
    path, _ = write_adapter(replica.folder, RandomAdapter(seed=4, rank=24), replica.base_hash)
    record = await replica.register("too-large", path.read_bytes(), rank=24, target_modules=ALL_TARGETS)
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert (heard.refused.code, heard.refused.elsewhere) == ("adapter_failed", False)
    assert "24" in heard.refused.message
    found = await evaluate(replica, record)
    assert not found.passed


async def test_c17_a_hundred_loads_and_unloads_leave_the_base_as_it_was(replica: Rig) -> None:
    record = await register(replica, 5)
    before = await tokens(replica, "before", None)
    for _ in range(100):
        assert (await load(replica, record)).ok
        assert (await unload(replica, record)).ok
    assert replica.replica.loader.ram.budget.used_bytes == 0
    assert replica.replica.loader.disk.budget.used_bytes == 0
    assert await tokens(replica, "after", None) == before


async def test_an_answer_under_a_schema_is_json_wherever_it_goes_on(replica: Rig) -> None:
    """Also with log probabilities, and when half of it came from another replica."""
    closed = {"type": "object", "additionalProperties": False}
    schema = {**closed, "properties": {"n": {"enum": [12, 34]}}, "required": ["n"]}
    request = replica.request("whole", max_tokens=120)
    sampling = msgspec.structs.replace(request.sampling, json_schema=json.dumps(schema), top_logprobs=2)
    heard = await replica.caller.run(msgspec.structs.replace(request, sampling=sampling))
    assert heard.finish is not None, heard.answers
    assert heard.finish.reason == "stop"
    assert json.loads(heard.text)["n"] in (12, 34)
    *spoken, ending = heard.chunks
    assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in spoken)
    assert (len(ending.token_ids), ending.text, ending.logprobs) == (1, "", ())
    half = msgspec.structs.replace(request, request_id="half", produced_token_ids=heard.token_ids[:7])
    rest = await replica.caller.run(msgspec.structs.replace(half, sampling=sampling))
    assert rest.token_ids == heard.token_ids[7:]


async def test_a_schema_that_cannot_be_followed_is_refused_with_the_reason(replica: Rig) -> None:
    request = replica.request("r")
    sampling = msgspec.structs.replace(request.sampling, json_schema='{"type": "wishes"}')
    told = refused(await replica.caller.run(msgspec.structs.replace(request, sampling=sampling)))
    assert (told.code, told.elsewhere) == ("invalid_request", False)
    assert told.message == "The JSON schema cannot be followed: Invalid type: wishes."
