"""Adapters and their slots: what every engine must do with them."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest

from services.replica_worker.engine.port import BASE_SLOT, AdapterUnusable
from tests.support.engine_subject import (
    MAX_ROWS,
    SLOTS,
    Subject,
    crowd,
    prompt_of,
)
from tests.support.token_log import greedy


class SlotCases:
    async def test_every_adapter_answers_in_its_own_way(self, subject: Subject) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        requests = [greedy(f"slot {slot}", prompt_of(1), slot=slot) for slot in range(-1, SLOTS)]
        answers = await subject.answers(*requests)
        assert len({tuple(answer) for answer in answers}) == SLOTS + 1

    async def test_c01_running_streams_do_not_notice_loads_into_other_slots(self, subject: Subject) -> None:
        others = [await subject.read(seed) for seed in range(2, 8)]
        for slot in (0, 1):
            await subject.put(slot, seed=slot)
        calm = await subject.answers(*(greedy(f"calm-{slot}", prompt_of(1), slot, 200) for slot in (0, 1)))
        for slot in (0, 1):
            subject.engine.submit(greedy(f"churned-{slot}", prompt_of(1), slot, 200))
        loads = 0
        while not subject.log.ended("churned-1"):
            await subject.engine.load(2 + loads % (SLOTS - 2), others[loads % len(others)])
            loads += 1
        await subject.log.until_ended("churned-0", "churned-1")
        assert [subject.log.token_ids(f"churned-{slot}") for slot in (0, 1)] == calm
        assert loads > 5, "hardly anything was loaded meanwhile, so this run proves nothing"

    async def test_c04_the_base_is_bit_equal_whatever_adapters_do(self, subject: Subject) -> None:
        before = await subject.engine.probe(prompt_of(1), BASE_SLOT)
        answer = await subject.answers(greedy("before", prompt_of(1)))
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        assert await subject.engine.probe(prompt_of(1), BASE_SLOT) == before
        for request in crowd(MAX_ROWS - 2, SLOTS):
            subject.engine.submit(request)
        among, mixed = await asyncio.gather(
            subject.answers(greedy("among", prompt_of(1))), subject.engine.probe(prompt_of(1), BASE_SLOT)
        )
        assert among == answer
        assert mixed == before

    async def test_c19_no_stream_misses_a_step_while_adapters_load(self, subject: Subject) -> None:
        adapters = [await subject.read(seed) for seed in range(20)]
        names = [f"stream-{i}" for i in range(20)]
        for i, name in enumerate(names):
            subject.engine.submit(greedy(name, prompt_of(i), max_tokens=400))
        await subject.log.until_tokens(names[-1], 1)
        first_full_step = len(subject.log.steps) - 1
        for i, adapter in enumerate(adapters):
            await subject.engine.load(i % SLOTS, adapter)
        last_step = len(subject.log.steps)
        assert not any(subject.log.ended(name) for name in names), "the loads outlasted the streams"
        for step in subject.log.steps[first_full_step:last_step]:
            assert sorted(token.request_id for token in step) == sorted(names)

    async def test_a_slot_in_use_is_not_written(self, subject: Subject) -> None:
        other = await subject.read(1)
        await subject.put(0, seed=0)
        (calm,) = await subject.answers(greedy("calm", prompt_of(1), 0, 50))
        subject.engine.submit(greedy("running", prompt_of(1), 0, 50))
        with pytest.raises(ValueError, match="slot 0 has 1 requests"):
            await subject.engine.load(0, other)
        with pytest.raises(ValueError, match="slot 0 has 1 requests"):
            await subject.engine.clear(0)
        await subject.log.until_ended("running")
        assert subject.log.token_ids("running") == calm

    async def test_a_slot_that_does_not_exist_is_refused(self, subject: Subject) -> None:
        with pytest.raises(ValueError, match="does not exist"):
            await subject.put(SLOTS, seed=0)
        with pytest.raises(ValueError, match="does not exist"):
            await subject.engine.clear(BASE_SLOT)

    async def test_a_cleared_slot_is_empty(self, subject: Subject) -> None:
        empty = await subject.engine.fingerprint(0)
        await subject.put(0, seed=0)
        await subject.engine.clear(0)
        await subject.engine.clear(0)
        assert await subject.engine.fingerprint(0) == empty
        assert "holds no adapter" in (await subject.error_of(greedy("a", prompt_of(1), slot=0)) or "")

    async def test_c17_a_slot_forgets_everything_of_200_former_adapters(self, subject: Subject) -> None:
        empty = await subject.engine.fingerprint(0)
        adapter = await subject.read(0)
        for _ in range(200):
            await subject.engine.load(0, adapter)
            await subject.engine.clear(0)
        assert await subject.engine.fingerprint(0) == empty
        assert subject.engine.load_figures().kv_bytes_used == 0

    async def test_a_fingerprint_tells_adapters_apart_and_slots_not(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        await subject.put(1, seed=1)
        await subject.put(2, seed=0)
        first, other, same = [await subject.engine.fingerprint(slot) for slot in (0, 1, 2)]
        assert first == same != other
        assert await subject.engine.fingerprint(BASE_SLOT) == hashlib.sha256().hexdigest()

    async def test_a_probe_gives_the_best_tokens_first(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        base, adapted = [await subject.engine.probe(prompt_of(1), slot, top=5) for slot in (BASE_SLOT, 0)]
        assert base.finite
        assert len(base.token_ids) == len(base.logprobs) == 5
        assert list(base.logprobs) == sorted(base.logprobs, reverse=True)
        assert (adapted.token_ids, adapted.logprobs) != (base.token_ids, base.logprobs)
        with pytest.raises(ValueError, match="holds no adapter"):
            await subject.engine.probe(prompt_of(1), 1)

    async def test_c49_another_base_hash_is_refused(self, subject: Subject) -> None:
        path, spec = subject.write_adapter(0)
        with pytest.raises(AdapterUnusable, match="trained on base"):
            await subject.engine.read(path, msgspec.structs.replace(spec, base_model_hash="0" * 64))

    async def test_c46_a_rank_above_the_limit_is_refused(self, subject: Subject) -> None:
        path, spec = subject.write_adapter(0)
        for rank in (0, -1, subject.info.rank_limit + 1):
            with pytest.raises(AdapterUnusable, match=f"rank {rank} is outside"):
                await subject.engine.read(path, msgspec.structs.replace(spec, rank=rank))

    async def test_c20_a_file_that_is_gone_is_a_typed_error(self, subject: Subject) -> None:
        path, spec = subject.write_adapter(0)
        path.unlink()
        with pytest.raises(AdapterUnusable, match="cannot be read"):
            await subject.engine.read(path, spec)
        await subject.answers(greedy("others", prompt_of(1)))
