"""Proof of effect with the real model and real weights: each planted fault is seen, and no wrong token leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import save

from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.tiers.ram import spec_of
from shared.base_model import base_model_hash
from shared.messages.desired import AdapterRecord
from tests.support.planted_engine import PlantedEngine
from tests.support.proof import Mismatches, assert_silent, evaluated, outcomes, truth
from tests.support.random_adapter import ALL_TARGETS, RandomAdapter, adapter_tensors
from tests.support.replica import Rig, refused, rig
from tests.support.replica_operations import load, unload
from tests.support.tiny_model import LAYERS, tiny_model_once

Tensors = dict[str, torch.Tensor]


@pytest.fixture(params=["float32", "bfloat16"])
async def replica(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    model = tiny_model_once(tmp_path_factory)
    policy = TorchPolicy(slots=4, max_rows=8, max_context_tokens=256, dtype=request.param, threads=1)
    settings = {"ram_budget_bytes": 64 << 20, "disk_budget_bytes": 64 << 20, "max_context_tokens": 256}
    base = base_model_hash(model)
    async with rig(tmp_path, model, engine=PlantedEngine(model, policy), base_hash=base, **settings) as built:
        yield built
        await built.settled()
        built.assert_sound()


def engine_of(replica: Rig) -> PlantedEngine:
    assert isinstance(replica.engine, PlantedEngine)
    return replica.engine


async def register(replica: Rig, adapter_id: str, tensors: Tensors, **changes: Any) -> AdapterRecord:
    targets = tuple(name for name in ALL_TARGETS if any(f".{name}." in tensor for tensor in tensors))
    return await replica.register(adapter_id, save(tensors), target_modules=targets, **{"rank": 8, **changes})


async def adapter(replica: Rig, seed: int = 1, **changes: Any) -> AdapterRecord:
    return await evaluated(replica, await register(replica, f"a{seed}", tensors_of(seed), **changes))


def tensors_of(seed: int, std: float = 0.15) -> Tensors:
    return adapter_tensors(RandomAdapter(seed=seed, std=std))


async def plant(replica: Rig, record: AdapterRecord, tensors: Tensors, times: int = 9, **spec: Any) -> None:
    """From now on loads give these weights, applied as `spec` says."""
    path = replica.folder / "planted.safetensors"
    path.write_bytes(save(tensors))
    host = await engine_of(replica).read(path, msgspec.structs.replace(spec_of(record), **spec))
    engine_of(replica).plant(host, times)


FAULTS: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "another adapter": (tensors_of(2), {}),
    "half of the layers": ({name: each for name, each in tensors_of(1).items() if ".layers.0." in name}, {}),
    "one module missing": (
        {
            name: each * (0.0 if "layers.1.mlp.down_proj.lora_B" in name else 1.0)
            for name, each in tensors_of(1).items()
        },
        {},
    ),
    "half of each matrix": (
        {name: torch.cat([each[: len(each) // 2], each[len(each) // 2 :] * 0]) for name, each in tensors_of(1).items()},
        {},
    ),
    "twice the scale": (tensors_of(1), {"alpha": 32.0}),
    "half the scale": (tensors_of(1), {"alpha": 8.0}),
    "rsLoRA where it is none (C45)": (tensors_of(1), {"use_rslora": True}),
    "a pattern that is not applied (C50)": (tensors_of(1), {"alpha_pattern": {"down_proj": 64.0}}),
    "nothing": ({name: each * 0 for name, each in tensors_of(1).items()}, {}),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_c45_c50_wrong_weights_are_seen_and_no_token_of_them_leaves(replica: Rig, fault: str) -> None:
    told = Mismatches()
    await told.listen(replica)
    record = await adapter(replica)
    tensors, spec = FAULTS[fault]
    await plant(replica, record, tensors, **spec)
    heard = [await replica.caller.send(replica.request(f"r{at}", record)) for at in range(3)]
    await replica.caller.wait(lambda: all(each.over for each in heard))
    for each in heard:
        assert (refused(each).code, refused(each).elsewhere) == ("adapter_failed", True)
        assert_silent(replica, each)
    assert (await told.wait(1))[0].adapter_id == record.adapter_id


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_second_try_heals_and_uses_nothing_that_the_first_one_computed(replica: Rig, fault: str) -> None:
    """The prompt is longer than a block of the KV cache: what wrong weights left in the prefix cache under the right
    digest would be found again."""
    record = await adapter(replica)
    expected = await truth(replica, "clean", record)
    tensors, spec = FAULTS[fault]
    await plant(replica, record, tensors, times=1, **spec)
    heard = [await replica.caller.send(replica.request(f"r{at}", record)) for at in range(3)]
    await replica.caller.wait(lambda: all(each.over for each in heard))
    assert heard[0].accepted is not None
    assert heard[0].accepted.prompt_tokens > 16
    assert [each.token_ids for each in heard] == [expected] * 3
    assert outcomes(replica)["tried again"] == 1


@pytest.mark.parametrize(
    ("base_digest", "told_by"), [(None, "does not do here what is on record"), ("", "what stands in the slot")]
)
async def test_another_adapter_that_is_almost_alike_is_told_by_the_probe_or_else_by_its_bytes(
    replica: Rig, base_digest: str | None, told_by: str
) -> None:
    """As canaries are whose markers begin with the same letter. What was measured on a machine with other last digits
    leaves the probe a tolerance that they are within."""
    record = await adapter(replica)
    if base_digest is not None:
        (effect,) = record.effects
        record = msgspec.structs.replace(record, effects=(msgspec.structs.replace(effect, base_digest=base_digest),))
        await replica.tell(record)
    alike = {
        name: each * (1.02 if name.endswith("layers.0.self_attn.q_proj.lora_B.weight") else 1.0)
        for name, each in tensors_of(1).items()
    }
    await plant(replica, record, alike)
    heard = await replica.caller.run(replica.request("r1", record))
    assert told_by in refused(heard).message
    assert_silent(replica, heard)


async def test_a_slot_index_off_by_one_is_seen(replica: Rig) -> None:
    records = [await adapter(replica, seed) for seed in (1, 2, 3, 4)]
    for record in records:
        assert (await load(replica, record)).ok
    assert (await unload(replica, records[0])).ok
    engine_of(replica).slots_off_by = 1
    heard = await replica.caller.run(replica.request("r1", records[0]))
    assert refused(heard).elsewhere
    assert_silent(replica, heard)
    engine_of(replica).slots_off_by = 0


async def test_copies_in_ram_that_are_swapped_are_read_anew(replica: Rig) -> None:
    one, two = await adapter(replica, 1), await adapter(replica, 2)
    expected = await truth(replica, "clean", one)
    for record in (one, two):
        assert (await load(replica, record, "ram")).ok
    hosts = replica.replica.loader.ram._hosts
    hosts[one.key], hosts[two.key] = hosts[two.key], hosts[one.key]
    assert (await replica.caller.run(replica.request("r1", one))).token_ids == expected
    assert outcomes(replica)["tried again"] == 1


def late_queries(strength: float) -> Tensors:
    """Only q and k of the last layer, weakly: what attention there looks at, a little."""
    last = f".layers.{LAYERS - 1}."
    drawn = tensors_of(5, std=strength)
    return {name: each for name, each in drawn.items() if last in name and ("q_proj" in name or "k_proj" in name)}


@pytest.mark.parametrize("fault", ["another of its kind", "nothing"])
async def test_an_adapter_too_weak_for_the_probe_is_proven_by_its_bytes(replica: Rig, fault: str) -> None:
    weak = late_queries(0.01)
    record = await register(replica, "weak", weak)
    found = await measured_here(replica, record)
    assert found.effects[0].shift < 0.01
    heard = await replica.caller.run(replica.request("r1", found))
    assert heard.finish is not None
    assert outcomes(replica)["by its bytes"] == 1
    assert (await unload(replica, record)).ok
    factor = 1.1 if fault == "another of its kind" else 0.0
    await plant(replica, record, {name: each * factor for name, each in weak.items()})
    heard = await replica.caller.run(replica.request("r2", found))
    assert "what stands in the slot" in refused(heard).message
    assert_silent(replica, heard)


async def measured_here(replica: Rig, record: AdapterRecord) -> AdapterRecord:
    """The record with its effect, although the built-in evaluation may call it none."""
    reference = await replica.replica.loader.acquire_proven(record)
    effect = await replica.replica.loader.slots.effects.measure(reference.slot)
    reference.release()
    record = msgspec.structs.replace(record, effects=(effect,))
    await replica.tell(record)
    assert (await unload(replica, record)).ok
    replica.replica.loader.slots.effects.forget(record.key)
    return record


async def test_an_effect_learnt_here_is_what_the_evaluation_would_have_found(replica: Rig) -> None:
    record = await register(replica, "a1", tensors_of(1))
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.finish is not None
    learnt = replica.replica.loader.slots.effects.known(record)
    assert outcomes(replica) == {"learnt here": 1}
    assert learnt is not None
    assert (await evaluated(replica, record)).effects == (learnt,)


async def test_a_wrong_load_is_not_learnt_from(replica: Rig) -> None:
    record = await register(replica, "a1", tensors_of(1))
    await plant(replica, record, tensors_of(2))
    assert refused(await replica.caller.run(replica.request("r1", record))).elsewhere
    assert replica.replica.loader.slots.effects.known(record) is None


async def test_many_loads_beside_busy_rows_are_all_proven_by_the_probe(replica: Rig) -> None:
    """The noise of a full batch stays within the tolerance."""
    records = [await adapter(replica, seed) for seed in range(1, 9)]
    heard = [
        await replica.caller.send(replica.request(f"r{at}", record, max_tokens=4 + at % 5))
        for at, record in enumerate([*records, *reversed(records), *records])
    ]
    await replica.caller.wait(lambda: all(each.over for each in heard))
    assert all(each.finish is not None for each in heard)
    assert "tried again" not in outcomes(replica)
    assert replica.replica.reporter.report().effect_mismatches == 0
