"""Requests and their tokens: what every engine must do with them."""

from __future__ import annotations

import pytest

from services.replica_worker.engine.port import EngineFailed
from tests.support.engine_subject import (
    CHUNK_TOKENS,
    CONTEXT_TOKENS,
    MAX_ROWS,
    SLOTS,
    Subject,
    crowd,
    mix_faults,
    prompt_of,
    sampled,
)
from tests.support.token_log import greedy


class StreamCases:
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

    async def test_a_request_answers_the_same_alone_and_among_31_others(self, subject: Subject) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        assert await mix_faults(subject) == []

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
        assert (figures.kv_bytes_used, figures.kv_used_tokens) == (0, 0)

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

    async def test_load_figures_add_up(self, subject: Subject) -> None:
        subject.engine.submit(greedy("a", prompt_of(1, 10), max_tokens=100))
        subject.engine.submit(greedy("b", prompt_of(2, 20), max_tokens=100))
        await subject.log.until_tokens("b", 2)
        figures = subject.engine.load_figures()
        assert figures.running == 2
        assert figures.tokens_in_flight == 10 + 100 + 20 + 100
        assert figures.kv_bytes_used > 0
        assert 0 < figures.kv_used_tokens <= subject.info.kv_tokens
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
