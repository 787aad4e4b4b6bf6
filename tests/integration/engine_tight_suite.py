"""An engine whose KV cache is far too small for what it is asked: what every engine must do."""

from __future__ import annotations

import msgspec

from services.replica_worker.engine.port import EngineRequest
from tests.support.engine_subject import Subject, prompt_of
from tests.support.token_log import TokenLog, greedy

TIGHT_KV_TOKENS = 256
"""The KV cache of a tight subject, and its longest context; in all else it is like the others."""
LOAD = 24


def demanding(number: int, name: str = "r") -> EngineRequest:
    """Alone it fits, three at once do not; sampled, so that a position that is drawn twice shows."""
    request = greedy(f"{name}{number}", prompt_of(number, 10 + number * 7 % 50), max_tokens=40 + number % 30)
    return msgspec.structs.replace(request, temperature=1.0, seed=number, cache_salt=name)


def pauses(log: TokenLog, names: list[str]) -> int:
    """How often a stream that had begun missed a step of the engine."""
    seen = [{token.request_id for token in step} for step in log.steps]
    spans = ((name, log.step_of(name), log.step_of(name, -1)) for name in names)
    return sum(name not in step for name, first, last in spans for step in seen[first:last])


class TightCases:
    async def test_more_than_fits_at_once_takes_turns_and_all_of_it_ends(self, subject: Subject) -> None:
        requests = [demanding(number) for number in range(LOAD)]
        answers = await subject.answers(*requests)
        assert [len(answer) for answer in answers] == [request.max_tokens for request in requests]
        for request in requests:
            tokens = subject.log.tokens[request.request_id]
            assert [token.position for token in tokens] == list(range(request.max_tokens))
        assert pauses(subject.log, [request.request_id for request in requests]) > 0, "nobody ever had to give way"
        figures = subject.engine.load_figures()
        assert (figures.running, figures.waiting, figures.kv_bytes_used, figures.kv_used_tokens) == (0, 0, 0, 0)

    async def test_c23_who_leaves_while_others_wait_for_room_holds_nothing(self, subject: Subject) -> None:
        for number in range(LOAD):
            subject.engine.submit(demanding(number))
        await subject.log.until_ended("r0")
        for number in range(1, LOAD, 2):
            subject.engine.abort(f"r{number}")
        await subject.log.until_ended(*(f"r{number}" for number in range(0, LOAD, 2)))
        await subject.answers(greedy("last", prompt_of(1), max_tokens=1))
        figures = subject.engine.load_figures()
        assert (figures.running, figures.waiting, figures.tokens_in_flight, figures.kv_bytes_used) == (0, 0, 0, 0)


class ExactTightCases(TightCases):
    async def test_who_had_to_give_way_answers_as_if_alone(self, subject: Subject) -> None:
        together = await subject.answers(*(demanding(number) for number in range(LOAD)))
        assert pauses(subject.log, [f"r{number}" for number in range(LOAD)]) > 0, "nobody ever had to give way"
        for number, answer in enumerate(together):
            assert await subject.answers(demanding(number, "alone-")) == [answer]
