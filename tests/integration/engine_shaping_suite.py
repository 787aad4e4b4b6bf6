"""What engines with a model do about penalties, bias, log probabilities: to the row that asks, and to no other."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
import pytest

from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.engine.shaping import Logprobs, Shaping
from tests.support.engine_subject import Subject, crowd, prompt_of, sampled
from tests.support.token_log import greedy

PENALTIES = Shaping(frequency_penalty=1.5, presence_penalty=0.5, logit_bias={40: 1.0, 41: -100.0}, top_logprobs=5)
LISTENING = Shaping(top_logprobs=4)


def shaped(request: EngineRequest, shaping: Shaping, **changes: Any) -> EngineRequest:
    return msgspec.structs.replace(request, shaping=shaping, **changes)


def told(subject: Subject, request_id: str) -> list[Logprobs]:
    heard = [token.logprobs for token in subject.log.tokens[request_id]]
    assert None not in heard
    return [each for each in heard if each is not None]


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
