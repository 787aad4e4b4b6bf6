"""What engines with a model do about penalties, bias, log probabilities and schemas, and to no other row."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from typing import Any

import msgspec
import pytest

from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.engine.shaping import GrammarUnusable, Logprobs, Shaping
from tests.support.engine_subject import CHUNK_TOKENS, Subject, crowd, prompt_of, sampled
from tests.support.token_log import greedy

COUNT = {
    "type": "object",
    "properties": {"kind": {"enum": ["ab", "cd"]}, "count": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
LISTED = {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3}
PENALTIES = Shaping(frequency_penalty=1.5, presence_penalty=0.5, logit_bias={40: 1.0, 41: -100.0}, top_logprobs=5)
LISTENING = Shaping(top_logprobs=4)


def shaped(request: EngineRequest, shaping: Shaping, **changes: Any) -> EngineRequest:
    return msgspec.structs.replace(request, shaping=shaping, **changes)


def told(subject: Subject, request_id: str) -> list[Logprobs]:
    heard = [token.logprobs for token in subject.log.tokens[request_id]]
    assert None not in heard
    return [each for each in heard if each is not None]


async def under(subject: Subject, schema: dict[str, Any], request: EngineRequest, **more: Any) -> EngineRequest:
    grammar = await subject.engine.understand(json.dumps(schema))
    return shaped(request, Shaping(grammar=grammar, **more), max_tokens=200, ignore_eos=False)


def text_of(answer: list[int]) -> str:
    """Of the tiny model's tokens, which are the bytes of printing characters in order, and a few others."""
    characters = [*range(0x21, 0x7F)]
    spelled = {3 + at: chr(byte) for at, byte in enumerate(characters)}
    return "".join(spelled.get(token_id, " ") for token_id in answer[:-1])


class ShapingCases:
    async def test_a_bias_forces_a_token_and_another_bans_one(self, subject: Subject) -> None:
        (plain,) = await subject.answers(greedy("plain", prompt_of(1)))
        forced = shaped(greedy("forced", prompt_of(1)), Shaping(logit_bias={77: 100.0}))
        banned = shaped(greedy("banned", prompt_of(1)), Shaping(logit_bias={plain[0]: -100.0}))
        assert (await subject.answers(forced))[0] == [77] * 16
        assert plain[0] not in (await subject.answers(banned))[0]

    async def test_penalties_end_repetition(self, subject: Subject) -> None:
        """The bias alone would repeat one token: each time that it came makes it less likely, until others win."""
        pushed = Shaping(logit_bias={77: 3.0}, frequency_penalty=2.0)
        (often,) = await subject.answers(shaped(greedy("often", prompt_of(1)), Shaping(logit_bias={77: 3.0})))
        (seldom,) = await subject.answers(shaped(greedy("seldom", prompt_of(1)), pushed))
        assert Counter(often)[77] > Counter(seldom)[77] > 0

    @pytest.mark.parametrize("temperature", [0.0, 1.3])
    async def test_to_be_told_changes_no_token(self, subject: Subject, temperature: float) -> None:
        request = sampled("plain", seed=5, temperature=temperature)
        (plain,) = await subject.answers(request)
        (heard,) = await subject.answers(shaped(request, LISTENING, request_id="told"))
        assert heard == plain
        for token_id, logprobs in zip(heard, told(subject, "told"), strict=True):
            assert sorted(logprobs.of_token_ids, reverse=True) == list(logprobs.of_token_ids)
            assert len(logprobs.token_ids) == 4
            assert all(math.isfinite(value) and value <= 0.0 for value in (logprobs.chosen, *logprobs.of_token_ids))
            if token_id in logprobs.token_ids:
                assert logprobs.of_token_ids[logprobs.token_ids.index(token_id)] == logprobs.chosen
            else:
                assert logprobs.chosen <= logprobs.of_token_ids[-1]

    async def test_what_is_told_is_what_a_probe_finds(self, subject: Subject) -> None:
        probe = await subject.engine.probe(prompt_of(1), -1, top=4)
        await subject.answers(shaped(sampled("told", seed=5), LISTENING))
        first = told(subject, "told")[0]
        assert first.token_ids == probe.token_ids
        assert first.of_token_ids == pytest.approx(probe.logprobs, abs=1e-5)

    @pytest.mark.parametrize("temperature", [0.0, 1.3])
    @pytest.mark.parametrize("cut", [1, 10, 23])
    async def test_a_continuation_counts_what_the_other_replica_produced(
        self, subject: Subject, temperature: float, cut: int
    ) -> None:
        request = shaped(sampled("whole", seed=3, temperature=temperature), PENALTIES)
        (whole,) = await subject.answers(request)
        (tail,) = await subject.answers(
            msgspec.structs.replace(
                request,
                request_id="rest",
                prompt_token_ids=prompt_of(1) + tuple(whole[:cut]),
                first_position=cut,
                max_tokens=24 - cut,
            )
        )
        assert tail == whole[cut:]
        (forgetful,) = await subject.answers(
            msgspec.structs.replace(request, request_id="other", prompt_token_ids=prompt_of(1) + tuple(whole[:10]))
        )
        assert forgetful[:14] != whole[10:], "the penalties change nothing here, so this run proves nothing"

    async def test_what_a_row_is_forced_to_its_neighbours_are_not(self, subject: Subject) -> None:
        requests = [
            shaped(request, Shaping(logit_bias={100 + at: 100.0}, top_logprobs=at % 3)) if at % 2 else request
            for at, request in enumerate(crowd(12, 0))
        ]
        answers = await subject.answers(*requests)
        assert [set(answer) for answer in answers[1::2]] == [{100 + at} for at in range(1, 12, 2)]
        assert all(len(set(answer)) > 1 for answer in answers[::2])

    @pytest.mark.parametrize("temperature", [0.0, 1.3])
    async def test_an_answer_under_a_schema_is_json_of_it_and_ends(self, subject: Subject, temperature: float) -> None:
        requests = [
            await under(
                subject, COUNT, sampled(f"r{seed}", seed, temperature=temperature, prompt_token_ids=prompt_of(seed))
            )
            for seed in range(8)
        ]
        answers = await subject.answers(*requests)
        for request, answer in zip(requests, answers, strict=True):
            assert subject.log.last(request.request_id).finish == "stop", subject.log.last(request.request_id)
            assert answer[-1] in subject.info.eos_token_ids
            said = json.loads(text_of(answer))
            assert said["kind"] in ("ab", "cd")
            assert 0 <= said["count"] <= 999
        assert temperature == 0.0 or len({text_of(answer) for answer in answers}) > 1

    async def test_a_short_limit_cuts_the_json(self, subject: Subject) -> None:
        request = await under(subject, COUNT, sampled("r", 1))
        (whole,) = await subject.answers(request)
        (cut,) = await subject.answers(msgspec.structs.replace(request, request_id="cut", max_tokens=5))
        assert cut == whole[:5]
        assert subject.log.last("cut").finish == "length"

    @pytest.mark.parametrize("cut", [1, 9])
    async def test_a_schema_is_followed_on_from_what_the_other_replica_produced(
        self, subject: Subject, cut: int
    ) -> None:
        request = await under(subject, COUNT, sampled("whole", 3), frequency_penalty=0.5, top_logprobs=2)
        (whole,) = await subject.answers(request)
        there = {"prompt_token_ids": prompt_of(1) + tuple(whole[:cut]), "first_position": cut}
        (tail,) = await subject.answers(msgspec.structs.replace(request, request_id="rest", **there))
        assert tail == whole[cut:]
        assert all(math.isfinite(each.chosen) for each in told(subject, "rest"))
        foreign = {"prompt_token_ids": prompt_of(1) + prompt_of(2, 3), "first_position": 3}
        error = await subject.error_of(msgspec.structs.replace(request, request_id="foreign", **foreign))
        assert error == "what was produced so far does not follow the JSON schema"

    async def test_a_long_prompt_is_shaped_from_its_end(self, subject: Subject) -> None:
        """Its first parts are computed in steps of their own, which produce nothing."""
        long = prompt_of(1, 3 * CHUNK_TOKENS + 5)
        request = await under(subject, COUNT, sampled("json", 1, prompt_token_ids=long))
        (answer,) = await subject.answers(request)
        assert json.loads(text_of(answer))["kind"] in ("ab", "cd")
        once = Shaping(presence_penalty=50.0, logit_bias={77: 40.0})
        (marked,) = await subject.answers(shaped(greedy("once", long), once))
        assert (marked[0], Counter(marked)[77]) == (77, 1)

    async def test_a_schema_is_understood_or_refused_before_it_is_used(self, subject: Subject) -> None:
        with pytest.raises(GrammarUnusable, match="Invalid type"):
            await subject.engine.understand('{"type": "wishes"}')
        one, other = await asyncio.gather(*(subject.engine.understand(json.dumps(each)) for each in (COUNT, LISTED)))
        assert [json.loads(each.json_schema) for each in (one, other)] == [COUNT, LISTED]


class ExactShapingCases(ShapingCases):
    """For an engine whose rows are the same to the last bit in every batch."""

    async def test_rows_of_one_batch_do_not_touch_one_another(self, subject: Subject) -> None:
        """Every other one is shaped, each differently; all answer as they do alone."""
        requests = [
            shaped(request, Shaping(frequency_penalty=0.3 * at, logit_bias={at + 50: 2.0}, top_logprobs=at % 3))
            if at % 2
            else request
            for at, request in enumerate(crowd(12, 0))
        ]
        alone = [
            (await subject.answers(msgspec.structs.replace(each, request_id=f"alone-{at}")))[0]
            for at, each in enumerate(requests)
        ]
        plain = [(await subject.answers(msgspec.structs.replace(each, shaping=None)))[0] for each in crowd(12, 0)]
        subject.log.tokens.clear()
        assert await subject.answers(*requests) == alone
        assert alone[::2] == plain[::2]
        assert alone[1::2] != plain[1::2]
        heard = [subject.log.tokens[each.request_id][0].logprobs is not None for each in requests]
        assert heard == [each.shaping is not None for each in requests]

    async def test_a_schema_holds_its_own_row_alone(self, subject: Subject) -> None:
        requests = [
            request if at % 3 == 0 else await under(subject, (COUNT, LISTED)[at % 3 - 1], request)
            for at, request in enumerate(crowd(9, 0))
        ]
        alone = [
            (await subject.answers(msgspec.structs.replace(each, request_id=f"alone-{at}")))[0]
            for at, each in enumerate(requests)
        ]
        subject.log.tokens.clear()
        assert await subject.answers(*requests) == alone
        assert [json.loads(text_of(answer)) for answer in alone[2::3]] != []
