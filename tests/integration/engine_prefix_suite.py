"""What one request leaves in the KV cache for the next, and for whom: what every engine must do."""

from __future__ import annotations

import msgspec

from services.replica_worker.engine.port import BASE_SLOT, EngineRequest
from tests.support.engine_subject import CHUNK_TOKENS, MAX_ROWS, Subject, prompt_of, sampled
from tests.support.token_log import greedy

LONG = prompt_of(1, 300)
"""Longer than the blocks of any engine, and several chunks of prefill."""


def asking(name: str, slot: int = BASE_SLOT, salt: str = "", prompt: tuple[int, ...] = LONG) -> EngineRequest:
    return msgspec.structs.replace(greedy(name, prompt, slot, max_tokens=8), cache_salt=salt)


async def found(subject: Subject, request: EngineRequest) -> int:
    """Run it; how many tokens of its prompt the engine found."""
    await subject.answers(request)
    first, *others = subject.log.tokens[request.request_id]
    assert not any(token.cached_tokens for token in others), "only the first token says it"
    return first.cached_tokens


class PrefixCases:
    async def test_what_was_computed_is_found_but_never_the_whole_prompt(self, subject: Subject) -> None:
        assert await found(subject, asking("first")) == 0
        assert 0 < await found(subject, asking("again")) < len(LONG)
        assert 0 < await found(subject, asking("longer", prompt=(*LONG, 5, 6, 7))) <= len(LONG)
        assert await found(subject, asking("other", prompt=prompt_of(2, 300))) == 0

    async def test_c02_a_new_version_in_the_slot_finds_nothing_of_the_former(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        assert await found(subject, asking("version 1", 0)) == 0
        assert await found(subject, asking("version 1 again", 0)) > 0
        await subject.put(0, seed=1)
        assert await found(subject, asking("version 2", 0)) == 0
        assert subject.log.token_ids("version 2") != subject.log.token_ids("version 1")
        assert await found(subject, asking("version 2 again", 0)) > 0

    async def test_the_same_version_in_another_slot_is_found(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        await found(subject, asking("here", 0))
        await subject.put(0, seed=1)
        await subject.put(3, seed=0)
        assert await found(subject, asking("there", 3)) > 0

    async def test_adapters_and_the_base_find_nothing_of_each_other(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        await subject.put(1, seed=1)
        slots = (BASE_SLOT, 0, 1)
        assert [await found(subject, asking(f"first-{slot}", slot)) for slot in slots] == [0, 0, 0]
        assert all([await found(subject, asking(f"again-{slot}", slot)) for slot in slots])

    async def test_a_cleared_slot_leaves_nothing_to_be_found(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        await found(subject, asking("before", 0))
        await subject.engine.clear(0)
        await subject.put(0, seed=0)
        assert await found(subject, asking("after", 0)) == 0

    async def test_c57_only_the_same_salt_finds_a_prompt(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        assert await found(subject, asking("acme", 0, "acme")) == 0
        assert await found(subject, asking("umbrella", 0, "umbrella")) == 0
        assert await found(subject, asking("nobody", 0)) == 0
        assert await found(subject, asking("acme again", 0, "acme")) > 0

    async def test_many_sequences_of_one_prompt_all_get_their_tokens(self, subject: Subject) -> None:
        names = [f"n{seed}" for seed in range(8)]
        requests = [sampled(name, seed, prompt_token_ids=LONG) for seed, name in enumerate(names)]
        answers = await subject.answers(*requests)
        assert [len(answer) for answer in answers] == [24] * 8
        assert len({tuple(answer) for answer in answers}) > 1
        assert subject.engine.load_figures().kv_bytes_used == 0

    async def test_c23_requests_that_leave_in_any_state_hold_nothing(self, subject: Subject) -> None:
        """Waiting, within their prompt, while they produce, after their end, and twice."""
        names = [f"r{at}" for at in range(MAX_ROWS + 6)]
        for at, name in enumerate(names):
            length = (4, CHUNK_TOKENS, 300)[at % 3]
            subject.engine.submit(greedy(name, prompt_of(at % 5, length), max_tokens=6 + at % 7))
        leaving = [name for at, name in enumerate(names) if at % 4 == 0]
        subject.engine.abort(leaving[-1])
        for name in leaving:
            await subject.log.until_tokens(names[names.index(name) + 1], 1)
            subject.engine.abort(name)
        staying = [name for name in names if name not in leaving]
        await subject.log.until_ended(*staying)
        await subject.answers(greedy("last", prompt_of(1), max_tokens=1))
        figures = subject.engine.load_figures()
        assert (figures.running, figures.waiting, figures.tokens_in_flight, figures.kv_bytes_used) == (0, 0, 0, 0)
        assert all(len(subject.log.tokens[name]) == 6 + names.index(name) % 7 for name in staying)
