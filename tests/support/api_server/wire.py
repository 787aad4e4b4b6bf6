"""Servers in an API server's place: one that hands on and takes down, one that answers from what was taken down."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.api_server.exchanges import Exchange, Recording, answer_of, question_of, reply_of
from tests.support.scripted_http import Answer, Asked, answering


@contextmanager
def listening_in(forward: Callable[[Asked], Answer], heard: list[Exchange]) -> Iterator[str]:
    """Yields an address. What is asked there is forwarded, and what comes back is answered and added to `heard`."""

    def answer(asked: Asked) -> Answer:
        reply = reply_of(forward(asked))
        heard.append(Exchange(question=question_of(asked), reply=reply))
        return answer_of(reply)

    with answering(answer) as url:
        yield url


@contextmanager
def replaying(recording: Recording) -> Iterator[str]:
    """Yields an address that answers as recorded. Raises AssertionError in the end unless exactly what was recorded was
    asked, in that order."""
    waiting, deviations = deque(recording.exchanges), list[str]()

    def answer(asked: Asked) -> Answer:
        question, expected = question_of(asked), waiting.popleft() if waiting else None
        if expected is None or question != expected.question:
            deviations.append(f"asked {question}, recorded is {expected and expected.question}")
            return Answer(418, b"this was not recorded")
        return answer_of(expected.reply)

    with answering(answer) as url:
        yield url
    assert not deviations, deviations
    assert not waiting, f"never asked: {[exchange.question for exchange in waiting]}"
