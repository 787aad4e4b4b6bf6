"""What every engine must do; each implementation's test class inherits it and provides `subject`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.port import (
    BASE_SLOT,
    AdapterSpec,
    AdapterUnusable,
    Engine,
    EngineFailed,
    EngineInfo,
    EngineRequest,
    HostAdapter,
)
from tests.support.token_log import TokenLog, greedy

SLOTS, MAX_ROWS, CONTEXT_TOKENS, CHUNK_TOKENS = 6, 32, 512, 64
"""Every subject is started with these."""

WriteAdapter = Callable[[int], tuple[Path, AdapterSpec]]


class Subject:
    """A started engine, what it handed out, and adapters for it by seed."""

    def __init__(self, engine: Engine, log: TokenLog, info: EngineInfo, write_adapter: WriteAdapter) -> None:
        self.engine = engine
        self.log = log
        self.info = info
        self.write_adapter = write_adapter

    async def read(self, seed: int) -> HostAdapter:
        path, spec = self.write_adapter(seed)
        return await self.engine.read(path, spec)

    async def put(self, slot: int, seed: int) -> None:
        await self.engine.load(slot, await self.read(seed))

    async def answers(self, *requests: EngineRequest) -> list[list[int]]:
        """Run them together; the token ids of each."""
        for request in requests:
            self.engine.submit(request)
        await self.log.until_ended(*(request.request_id for request in requests))
        return [self.log.token_ids(request.request_id) for request in requests]

    async def error_of(self, request: EngineRequest) -> str | None:
        await self.answers(request)
        (token,) = self.log.tokens[request.request_id]
        assert token.token_id == -1
        return token.error


def prompt_of(number: int, length: int = 12) -> tuple[int, ...]:
    """Prompts that differ from their first token on and stay clear of control tokens."""
    return tuple(3 + (number * 37 + at * 11) % 250 for at in range(length))


def sampled(request_id: str, seed: int, **changes: object) -> EngineRequest:
    request = greedy(request_id, prompt_of(1), max_tokens=24)
    return msgspec.structs.replace(request, **{"temperature": 1.3, "top_p": 0.9, "seed": seed, **changes})


def crowd(count: int, slots: int) -> list[EngineRequest]:
    """Requests of different lengths over all slots and the base."""
    return [
        greedy(f"crowd-{i}", prompt_of(100 + i, 5 + 7 * i % 90), slot=i % (slots + 1) - 1, max_tokens=10 + i % 9)
        for i in range(count)
    ]


async def mix_faults(subject: Subject) -> list[str]:
    """Which requests of a mixed batch differ from what they answer alone."""
    alone = [
        (await subject.answers(msgspec.structs.replace(request, request_id=f"alone-{request.request_id}")))[0]
        for request in crowd(MAX_ROWS, SLOTS)
    ]
    together = await subject.answers(*crowd(MAX_ROWS, SLOTS))
    names = [request.request_id for request in crowd(MAX_ROWS, SLOTS)]
    return [name for name, one, other in zip(names, alone, together, strict=True) if one != other]


class EngineSuite:
    async def test_it_says_what_it_can_do(self, subject: Subject) -> None:
        info = subject.info
        assert (info.slots, info.max_rows, info.max_context_tokens) == (SLOTS, MAX_ROWS, CONTEXT_TOKENS)
        assert info.base_model_hash
        assert info.eos_token_ids

    async def test_positions_count_up_and_the_limit_ends_it(self, subject: Subject) -> None:
        await subject.answers(greedy("a", prompt_of(1), max_tokens=9))
        tokens = subject.log.tokens["a"]
        assert [token.position for token in tokens] == list(range(9))
        assert [token.finish for token in tokens] == [None] * 8 + ["length"]

    async def test_every_adapter_answers_in_its_own_way(self, subject: Subject) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        requests = [greedy(f"slot {slot}", prompt_of(1), slot=slot) for slot in range(-1, SLOTS)]
        answers = await subject.answers(*requests)
        assert len({tuple(answer) for answer in answers}) == SLOTS + 1

    async def test_a_request_answers_the_same_alone_and_among_31_others(self, subject: Subject) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        assert await mix_faults(subject) == []

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

    async def test_a_long_prompt_does_not_stall_running_streams(self, subject: Subject) -> None:
        (calm,) = await subject.answers(greedy("calm", prompt_of(1), max_tokens=60))
        subject.engine.submit(greedy("running", prompt_of(1), max_tokens=60))
        await subject.log.until_tokens("running", 3)
        heard = len(subject.log.steps)
        chunks = 5
        subject.engine.submit(greedy("long", prompt_of(2, chunks * CHUNK_TOKENS), max_tokens=2))
        await subject.log.until_ended("running", "long")
        meanwhile = subject.log.steps[heard : subject.log.step_of("long")]
        assert len(meanwhile) >= chunks - 1
        assert all([token.request_id for token in step] == ["running"] for step in meanwhile)
        assert subject.log.token_ids("running") == calm

    async def test_short_prompts_are_not_kept_behind_a_long_one(self, subject: Subject) -> None:
        subject.engine.submit(greedy("long", prompt_of(2, 6 * CHUNK_TOKENS), max_tokens=2))
        subject.engine.submit(greedy("short", prompt_of(1), max_tokens=2))
        await subject.log.until_ended("long", "short")
        assert subject.log.step_of("short") < subject.log.step_of("long")

    async def test_a_seed_decides_whatever_the_company(self, subject: Subject) -> None:
        (alone,) = await subject.answers(sampled("alone", seed=7))
        for request in crowd(12, 0):
            subject.engine.submit(request)
        again, other = await subject.answers(sampled("again", seed=7), sampled("other", seed=8))
        assert again == alone
        assert other != alone

    async def test_a_continuation_goes_on_where_the_other_replica_stopped(self, subject: Subject) -> None:
        (whole,) = await subject.answers(sampled("whole", seed=3))
        rest = sampled(
            "rest", seed=3, prompt_token_ids=prompt_of(1) + tuple(whole[:10]), first_position=10, max_tokens=14
        )
        (tail,) = await subject.answers(rest)
        assert [token.position for token in subject.log.tokens["rest"]] == list(range(10, 24))
        assert tail == whole[10:]

    async def test_an_eos_token_stops_a_stream(self, subject: Subject) -> None:
        requests = [sampled(f"r{seed}", seed, ignore_eos=False, max_tokens=200, top_p=1.0) for seed in range(32)]
        await subject.answers(*requests)
        stopped = [r.request_id for r in requests if subject.log.last(r.request_id).finish == "stop"]
        assert stopped, "no stream met an eos token, so this run proves nothing"
        for name in stopped:
            *before, last = subject.log.token_ids(name)
            assert last in subject.info.eos_token_ids
            assert not set(before) & set(subject.info.eos_token_ids)

    async def test_the_context_ends_a_stream(self, subject: Subject) -> None:
        prompt = prompt_of(1, CONTEXT_TOKENS - 3)
        (answer,) = await subject.answers(greedy("a", prompt, max_tokens=100))
        assert len(answer) == 3
        assert subject.log.last("a").finish == "length"

    async def test_more_requests_than_rows_take_turns_in_order(self, subject: Subject) -> None:
        names = [f"r{i}" for i in range(MAX_ROWS + 5)]
        for i, name in enumerate(names):
            subject.engine.submit(greedy(name, prompt_of(i, 4), max_tokens=3))
        await subject.log.until_ended(*names)
        firsts = [subject.log.step_of(name) for name in names]
        assert firsts == sorted(firsts)
        assert max(len(step) for step in subject.log.steps) <= MAX_ROWS

    async def test_an_aborted_request_is_silent_and_gives_its_row_back(self, subject: Subject) -> None:
        names = [f"r{i}" for i in range(MAX_ROWS)]
        for i, name in enumerate(names):
            subject.engine.submit(greedy(name, prompt_of(i, 4), max_tokens=400))
        await subject.log.until_tokens(names[-1], 2)
        subject.engine.submit(greedy("next", prompt_of(1), max_tokens=3))
        subject.engine.abort("r5")
        heard = len(subject.log.tokens["r5"])
        await subject.log.until_ended("next")
        assert len(subject.log.tokens["r5"]) == heard
        for name in names:
            subject.engine.abort(name)
        await subject.answers(greedy("last", prompt_of(1), max_tokens=1))
        figures = subject.engine.load_figures()
        assert (figures.running, figures.waiting, figures.tokens_in_flight) == (0, 0, 0)
        assert figures.kv_bytes_used == 0

    async def test_an_aborted_id_can_be_used_again(self, subject: Subject) -> None:
        subject.engine.submit(greedy("again", prompt_of(1), max_tokens=400))
        await subject.log.until_tokens("again", 2)
        subject.engine.abort("again")
        heard = len(subject.log.tokens["again"])
        subject.engine.submit(greedy("again", prompt_of(2), max_tokens=5))
        await subject.log.until_ended("again")
        assert [token.position for token in subject.log.tokens["again"][heard:]] == list(range(5))

    async def test_a_waiting_request_can_be_aborted_and_unknown_ids_are_ignored(self, subject: Subject) -> None:
        for i in range(MAX_ROWS):
            subject.engine.submit(greedy(f"r{i}", prompt_of(i, 4), max_tokens=20))
        subject.engine.submit(greedy("waiting", prompt_of(1)))
        subject.engine.abort("waiting")
        subject.engine.abort("nobody")
        await subject.log.until_ended(*(f"r{i}" for i in range(MAX_ROWS)))
        await subject.answers(greedy("after", prompt_of(1)))
        assert subject.log.tokens["waiting"] == []

    async def test_what_cannot_run_ends_with_one_sentence(self, subject: Subject) -> None:
        wrong = {
            "slot 0 holds no adapter": greedy("empty", prompt_of(1), slot=0),
            "outside 1 to": greedy("long", prompt_of(1, CONTEXT_TOKENS)),
            "a prompt of 0 tokens": greedy("none", ()),
            "outside the vocabulary": greedy("vocabulary", (5, subject.info.vocabulary_size)),
            "max_tokens is 0": greedy("zero", prompt_of(1), max_tokens=0),
        }
        for sentence, request in wrong.items():
            assert sentence in (await subject.error_of(request) or "")

    async def test_two_live_requests_cannot_share_an_id(self, subject: Subject) -> None:
        subject.engine.submit(greedy("a", prompt_of(1), max_tokens=5))
        with pytest.raises(ValueError, match="already running"):
            subject.engine.submit(greedy("a", prompt_of(2)))
        await subject.log.until_ended("a")
        assert len(subject.log.tokens["a"]) == 5

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

    async def test_load_figures_add_up(self, subject: Subject) -> None:
        subject.engine.submit(greedy("a", prompt_of(1, 10), max_tokens=100))
        subject.engine.submit(greedy("b", prompt_of(2, 20), max_tokens=100))
        await subject.log.until_tokens("b", 2)
        figures = subject.engine.load_figures()
        assert figures.running == 2
        assert figures.tokens_in_flight == 10 + 100 + 20 + 100
        assert figures.kv_bytes_used > 0
        assert figures.steps > 0
        assert figures.tokens_per_s > 0

    async def test_after_close_nothing_is_heard(self, subject: Subject) -> None:
        subject.engine.submit(greedy("a", prompt_of(1), max_tokens=400))
        await subject.log.until_tokens("a", 2)
        await subject.engine.close()
        heard = len(subject.log.steps)
        await subject.engine.close()
        with pytest.raises(EngineFailed):
            subject.engine.load_figures()
        assert len(subject.log.steps) == heard
        assert not subject.log.ended("a")
