"""What only an engine can promise whose numbers depend on nothing but a sequence's own tokens: that neither
the cache nor the company changes one of them."""

from __future__ import annotations

import msgspec

from services.replica_worker.engine.port import BASE_SLOT
from tests.integration.engine_prefix_suite import LONG, asking, found
from tests.support.engine_subject import Subject, prompt_of, sampled


class ExactCases:
    async def test_a_found_prefix_gives_the_tokens_of_a_computed_one(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        for slot in (BASE_SLOT, 0):
            for length in (16, 17, 33, 64, 300):
                prompt = prompt_of(length, length)
                await found(subject, asking(f"warms {slot} {length}", slot, prompt=prompt))
                hit = asking(f"hit {slot} {length}", slot, prompt=(*prompt, 9))
                cold = asking(f"cold {slot} {length}", slot, salt="another", prompt=(*prompt, 9))
                assert await found(subject, hit) > 0
                assert await found(subject, cold) == 0
                assert subject.log.token_ids(hit.request_id) == subject.log.token_ids(cold.request_id)

    async def test_c02_a_new_version_answers_like_a_cold_one(self, subject: Subject) -> None:
        await subject.put(0, seed=1)
        (cold,) = await subject.answers(asking("cold", 0, salt="cold"))
        await subject.put(0, seed=0)
        for name in ("version 1", "version 1 again"):
            (former,) = await subject.answers(asking(name, 0))
        await subject.put(0, seed=1)
        assert await subject.answers(asking("version 2", 0)) == [cold] != [former]

    async def test_sequences_of_one_prompt_answer_as_each_does_alone(self, subject: Subject) -> None:
        together = await subject.answers(*(sampled(f"n{seed}", seed, prompt_token_ids=LONG) for seed in range(6)))
        for seed, answer in enumerate(together):
            alone = sampled(f"alone-{seed}", seed, prompt_token_ids=LONG, cache_salt=str(seed))
            assert await subject.answers(alone) == [answer]

    async def test_a_seed_draws_the_same_tokens_from_a_found_prompt(self, subject: Subject) -> None:
        first, other, again = [
            (await subject.answers(sampled(name, seed, prompt_token_ids=LONG)))[0]
            for name, seed in (("first", 5), ("other", 6), ("again", 5))
        ]
        assert subject.log.tokens["again"][0].cached_tokens > 0
        assert again == first != other

    async def test_an_answer_is_a_prefix_too(self, subject: Subject) -> None:
        """The next turn of a conversation: what was decoded one by one serves like what was computed at once."""
        (answer,) = await subject.answers(msgspec.structs.replace(asking("turn 1"), max_tokens=40))
        turn = (*LONG, *answer, 11, 12)
        assert await found(subject, asking("turn 2", prompt=turn)) > len(LONG)
        assert await found(subject, asking("cold", salt="cold", prompt=turn)) == 0
        assert subject.log.token_ids("turn 2") == subject.log.token_ids("cold")

    async def test_a_probe_sees_the_weights_and_not_the_cache(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        before = await subject.engine.probe(LONG, 0)
        assert await found(subject, asking("after a probe", 0)) == 0
        assert await subject.engine.probe(LONG, 0) == before
