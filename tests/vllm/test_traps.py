"""What vLLM does wrong by itself, planted: none of it reaches a request."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from vllm.lora.request import LoRARequest

from services.replica_worker.engine.port import AdapterUnusable, EngineFailed
from services.replica_worker.engine.vllm.adapter import VllmAdapter
from services.replica_worker.engine.vllm.engine import VllmEngine
from tests.support.engine_subject import SLOTS, Subject, prompt_of
from tests.support.token_log import greedy
from tests.vllm.conftest import core_of

pytestmark = pytest.mark.parametrize("workshop", ["bfloat16"], indirect=True)


def engine_of(subject: Subject) -> VllmEngine:
    assert isinstance(subject.engine, VllmEngine)
    return subject.engine


async def read(subject: Subject, seed: int) -> VllmAdapter:
    adapter = await subject.read(seed)
    assert isinstance(adapter, VllmAdapter)
    return adapter


async def standing(subject: Subject) -> list[int]:
    (ids,) = await core_of(engine_of(subject)).ask("standing")
    return sorted(ids)


async def in_worker(subject: Subject, look: Callable[[Any], Any]) -> Any:
    """Run a function in the one process that has vLLM's tensors."""
    (found,) = await core_of(engine_of(subject)).ask(look)  # type: ignore[arg-type]
    return found


def scrap(worker: Any) -> int:
    """How many values are left in slots that hold nobody."""
    ids = worker._tables.lora_index_to_id
    vacant = [index for index, lora_id in enumerate(ids) if lora_id is None]
    return sum(int(stack[index].count_nonzero()) for _, stack in worker._stacks() for index in vacant)


def scribble(worker: Any) -> None:
    """One wrong value in the slot of whoever stands there."""
    (index,) = [index for index, lora_id in enumerate(worker._tables.lora_index_to_id) if lora_id is not None]
    _, stack = next(worker._stacks())
    stack[index].view(-1)[0] += 1.0


async def test_a_load_while_every_slot_runs_evicts_nobody(subject: Subject) -> None:
    other = await subject.read(99)
    for slot in range(SLOTS):
        await subject.put(slot, seed=slot)
    names = [f"running-{slot}" for slot in range(SLOTS)]
    calm = await subject.answers(*(greedy(f"calm-{slot}", prompt_of(1), slot, 200) for slot in range(SLOTS)))
    before = await standing(subject)
    for slot, name in enumerate(names):
        subject.engine.submit(greedy(name, prompt_of(1), slot, 200))
    for slot in range(SLOTS):
        with pytest.raises(ValueError, match="has 1 requests on it"):
            await subject.engine.load(slot, other)
    assert await standing(subject) == before
    await subject.log.until_ended(*names)
    assert [subject.log.token_ids(name) for name in names] == calm


async def test_an_eviction_that_vllm_decides_on_is_noticed_at_the_next_load(subject: Subject) -> None:
    """Also the proof that vLLM does evict: one adapter more than slots, and it says that all is well."""
    for slot in range(SLOTS):
        await subject.put(slot, seed=slot)
    intruder, other = await read(subject, 50), await subject.read(51)
    before = await standing(subject)
    core = core_of(engine_of(subject))
    assert await core._llm.add_lora(LoRARequest("intruder", 10_000, str(intruder.folder))) is True
    assert 10_000 in await standing(subject)
    assert len(set(before) - set(await standing(subject))) == 1
    with pytest.raises(EngineFailed, match="vLLM's slots hold the adapters"):
        await subject.engine.load(0, other)
    with pytest.raises(EngineFailed, match="vLLM's slots hold the adapters"):
        subject.engine.load_figures()


async def test_a_worker_that_cannot_say_what_it_holds_breaks_the_engine(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(engine_of(subject))
    adapter, honest = await subject.read(0), core.ask

    async def ask(method: str, *args: object) -> list[Any]:
        return await honest("no such method" if method == "standing" else method, *args)

    monkeypatch.setattr(core, "ask", ask)
    with pytest.raises(EngineFailed, match="vLLM's worker failed at 'no such method'"):
        await subject.engine.load(0, adapter)
    with pytest.raises(EngineFailed, match="no such method"):
        subject.engine.load_figures()


async def test_an_id_never_comes_back(subject: Subject) -> None:
    """vLLM serves what it still holds under an id, whatever the request says; so one slot, many ids."""
    seen: set[int] = set()
    answers = []
    for seed in range(5):
        await subject.put(0, seed=seed)
        seen |= set(await standing(subject))
        answers.append(tuple((await subject.answers(greedy(f"seed {seed}", prompt_of(1), slot=0)))[0]))
    assert len(seen) == len(set(answers)) == 5


async def test_vllm_serves_the_old_adapter_under_an_id_that_comes_back(subject: Subject) -> None:
    """Why ids are counted: the planted second use of an id is "loaded", and changes nothing."""
    await subject.put(0, seed=0)
    (first,) = await standing(subject)
    other = await read(subject, 1)
    before = await subject.engine.fingerprint(0)
    reused = LoRARequest("other", first, str(other.folder))
    assert await core_of(engine_of(subject))._llm.add_lora(reused) is True
    assert await subject.engine.fingerprint(0) == before


async def test_digest_and_a_count_are_in_name_and_path(subject: Subject) -> None:
    adapter = await read(subject, 0)
    await subject.engine.load(0, adapter)
    await subject.engine.load(1, adapter)
    places = [engine_of(subject)._places.of(slot) for slot in (0, 1)]
    assert all(
        place and adapter.spec.digest in place.name and adapter.spec.digest in str(place.folder) for place in places
    )
    assert len({place.name for place in places if place}) == 2


async def test_one_adapter_in_two_slots_answers_in_one_batch(subject: Subject) -> None:
    """vLLM compares adapters by name: two ids under one name would leave one of them out of the batch."""
    await subject.put(0, seed=0)
    await subject.put(1, seed=0)
    one, other = await subject.answers(greedy("one", prompt_of(1), 0), greedy("other", prompt_of(1), 1))
    assert one == other


async def test_a_request_without_a_loaded_adapter_never_reaches_vllm(subject: Subject) -> None:
    """A path that vLLM cannot read kills its engine and every stream in it."""
    subject.engine.submit(greedy("running", prompt_of(1), max_tokens=200))
    assert "holds no adapter" in (await subject.error_of(greedy("early", prompt_of(1), slot=3)) or "")
    adapter = await read(subject, 0)
    adapter.weights.unlink()
    with pytest.raises(AdapterUnusable, match="the prepared file of adapter-0 cannot be read"):
        await subject.engine.load(3, adapter)
    assert "holds no adapter" in (await subject.error_of(greedy("late", prompt_of(1), slot=3)) or "")
    await subject.log.until_ended("running")
    assert subject.log.last("running").finish == "length"


async def test_a_prepared_file_that_was_changed_is_not_loaded(subject: Subject) -> None:
    adapter = await read(subject, 0)
    content = bytearray(adapter.weights.read_bytes())
    content[-1] ^= 0xFF
    adapter.weights.write_bytes(content)
    with pytest.raises(AdapterUnusable, match="has been changed"):
        await subject.engine.load(0, adapter)
    assert await standing(subject) == []


def wrong_shape(path: Path) -> None:
    tensors = load_file(path)
    name = next(name for name in sorted(tensors) if "down_proj.lora_B" in name)
    tensors[name] = torch.ones(tensors[name].shape[0] + 32, tensors[name].shape[1], dtype=tensors[name].dtype)
    save_file(tensors, str(path))


async def test_a_load_that_fails_half_way_leaves_nothing_and_fails_again(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM keeps the half that it copied, in a slot, and says True to the next try."""
    adapter = await read(subject, 0)
    wrong_shape(adapter.weights)
    monkeypatch.setattr(adapter, "_sha256", hashlib.sha256(adapter.weights.read_bytes()).hexdigest())
    for _ in range(2):
        with pytest.raises(AdapterUnusable, match="vLLM cannot apply adapter-0"):
            await subject.engine.load(0, adapter)
        assert await standing(subject) == []
        assert "holds no adapter" in (await subject.error_of(greedy("after", prompt_of(1), slot=0)) or "")
    alone = await subject.answers(greedy("base", prompt_of(1)))
    await subject.put(0, seed=1)
    assert await subject.answers(greedy("right", prompt_of(1), slot=0)) != alone


async def test_vllm_says_that_a_half_loaded_adapter_is_loaded(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why every failure is followed by a removal: the planted second call succeeds."""
    adapter = await read(subject, 0)
    wrong_shape(adapter.weights)
    core, broken = core_of(engine_of(subject)), LoRARequest("broken", 20_000, str(adapter.folder))
    with pytest.raises(Exception, match="failed"):
        await core._llm.add_lora(broken)
    assert await standing(subject) == [20_000]
    assert await core._llm.add_lora(broken) is True
    await core.ask("vacate", 20_000)
    assert await standing(subject) == []


async def test_the_files_of_an_adapter_stay_as_long_as_it_is_in_a_slot(subject: Subject) -> None:
    """Removing an adapter whose files are gone while it runs would kill vLLM's engine."""
    path, spec = subject.write_adapter(0)
    adapter = await subject.engine.read(path, spec)
    assert isinstance(adapter, VllmAdapter)
    folder = adapter.folder
    await subject.engine.load(0, adapter)
    path.unlink()
    del adapter
    gc.collect()
    assert folder.is_dir()
    await subject.answers(greedy("a", prompt_of(1), slot=0))
    await subject.engine.clear(0)
    gc.collect()
    assert not folder.exists()


async def test_every_slot_and_the_base_run_at_once_and_nobody_is_passed_over(subject: Subject) -> None:
    """vLLM skips, without ageing, requests whose adapter does not fit; with as many adapters as slots all fit."""
    for slot in range(SLOTS):
        await subject.put(slot, seed=slot)
    names = [f"slot {slot}" for slot in range(-1, SLOTS)]
    for slot, name in enumerate(names, start=-1):
        subject.engine.submit(greedy(name, prompt_of(1), slot, 100))
    await subject.log.until_tokens(names[-1], 3)
    assert subject.engine.load_figures().running == SLOTS + 1
    assert sorted(token.request_id for token in subject.log.steps[-1]) == sorted(names)
    await subject.log.until_ended(*names)


async def test_a_cancelled_load_leaves_a_slot_that_can_be_cleared(subject: Subject) -> None:
    adapter = await subject.read(0)
    loading = asyncio.ensure_future(subject.engine.load(0, adapter))
    await asyncio.sleep(0)
    loading.cancel()
    await asyncio.wait([loading])
    await subject.engine.clear(0)
    assert await standing(subject) == []
    await subject.put(0, seed=1)
    await subject.answers(greedy("after", prompt_of(1), slot=0))


async def test_c14_a_slot_that_was_cleared_is_refused_and_never_the_base(subject: Subject) -> None:
    await subject.put(0, seed=0)
    subject.engine.submit(greedy("running", prompt_of(1), 0, 5))
    await subject.log.until_ended("running")
    await subject.engine.clear(0)
    assert "holds no adapter" in (await subject.error_of(greedy("late", prompt_of(1), slot=0)) or "")


async def test_a_slot_holds_what_was_read_and_a_cleared_one_holds_zeros(subject: Subject) -> None:
    adapter, other = await subject.read(0), await subject.read(1)
    await subject.engine.load(0, adapter)
    expected = await subject.engine.expected_fingerprint(adapter)
    assert await subject.engine.fingerprint(0) == expected != await subject.engine.expected_fingerprint(other)
    assert await in_worker(subject, scrap) == 0
    await subject.engine.clear(0)
    assert await in_worker(subject, scrap) == 0


async def test_a_tensor_that_was_written_over_is_seen_in_the_fingerprint(subject: Subject) -> None:
    adapter = await subject.read(0)
    await subject.engine.load(0, adapter)
    await in_worker(subject, scribble)
    assert await subject.engine.fingerprint(0) != await subject.engine.expected_fingerprint(adapter)


async def test_the_same_bytes_with_another_alpha_are_another_adapter(subject: Subject) -> None:
    path, spec = subject.write_adapter(0)
    louder = msgspec.structs.replace(spec, alpha=spec.alpha * 3)
    await subject.engine.load(0, await subject.engine.read(path, spec))
    await subject.engine.load(1, await subject.engine.read(path, louder))
    prints = {await subject.engine.fingerprint(slot) for slot in (0, 1)}
    places = [engine_of(subject)._places.of(slot) for slot in (0, 1)]
    assert len(prints) == 2
    assert len({place.folder for place in places if place}) == 2
    assert hashlib.sha256(path.read_bytes()).hexdigest() == spec.digest
