"""Several answers with one reader."""

from __future__ import annotations

import pytest

from services.gateway.core import refusal
from services.gateway.core.stream import Deliver
from services.gateway.io.sheaf import Sheaf
from shared.messages.generation import Accepted, Finish, Usage

ACCEPTED = Accepted(request_id="q", replica_id="r", incarnation="i", tier="gpu", prompt_tokens=1, seed=1)
END = Finish(reason="stop", usage=Usage(prompt_tokens=1, completion_tokens=1))
NO = refusal.failed("No.", code="x")


def token(text: str, finish: Finish | None = None) -> Deliver:
    return Deliver(text=text, token_ids=(1,), first=False, finish=finish)


class Bound(Sheaf):
    """Remembers why the others were dropped."""

    def __init__(self, *, streaming: bool) -> None:
        self.dropped: list[str] = []
        super().__init__(2, self.dropped.append, streaming=streaming)


def test_a_streaming_reader_wakes_for_every_token_and_knows_whose_it_is() -> None:
    sheaf = Bound(streaming=True)
    first, second = sheaf.strands
    second.open(ACCEPTED)
    first.open(ACCEPTED)
    assert sheaf.wake.is_set()
    assert sheaf.verdict() == ACCEPTED
    first.put(token("a"))
    second.put(token("b", END))
    assert sheaf.take() == [(0, token("a")), (1, token("b", END))]
    assert not sheaf.wake.is_set()
    assert not sheaf.is_over
    first.put(token("", END))
    assert sheaf.wake.is_set()
    assert sheaf.is_over


def test_another_reader_wakes_when_all_are_over() -> None:
    sheaf = Bound(streaming=False)
    for strand in sheaf.strands:
        assert not sheaf.wake.is_set()
        strand.open(ACCEPTED)
        strand.put(token("a", END))
    assert sheaf.wake.is_set()
    assert sheaf.verdict() == ACCEPTED


@pytest.mark.parametrize(("streaming", "verdict"), [(True, ACCEPTED), (False, NO)])
def test_the_first_failure_is_that_of_all(streaming: bool, verdict: object) -> None:
    sheaf = Bound(streaming=streaming)
    first, second = sheaf.strands
    first.open(ACCEPTED)
    first.put(token("a"))
    second.fail(NO)
    first.fail(refusal.failed("Another.", code="y"))
    first.put(token("b"))
    assert sheaf.is_over
    assert sheaf.failure == NO
    assert sheaf.verdict() == verdict
    assert sheaf.take() == [(0, token("a"))]
    assert sheaf.dropped == ["Another answer to the same request failed: No."]


def test_an_answer_that_is_refused_before_the_first_token_is_a_status() -> None:
    sheaf = Bound(streaming=True)
    sheaf.strands[0].open(ACCEPTED)
    sheaf.strands[0].open(ACCEPTED)  # by another replica
    assert not sheaf.wake.is_set(), "the head waits for the other answer"
    sheaf.strands[1].fail(NO)
    assert sheaf.verdict() == NO


def test_the_first_token_does_not_wait_for_another_answer() -> None:
    sheaf = Bound(streaming=True)
    sheaf.strands[1].open(ACCEPTED)
    sheaf.strands[1].put(token("a"))
    assert sheaf.wake.is_set()
    assert sheaf.verdict() == ACCEPTED


def test_once_the_client_has_left_nobody_is_dropped_and_nobody_waits() -> None:
    sheaf = Bound(streaming=True)
    sheaf.close()
    sheaf.strands[0].fail(NO)
    assert sheaf.dropped == []
    assert sheaf.is_over
    assert sheaf.wake.is_set()


def test_the_bytes_that_wait_are_those_of_all() -> None:
    sheaf = Bound(streaming=True)
    sheaf.strands[0].put(token("x" * 1_000))
    assert sheaf.strands[1].waiting_bytes > 1_000
    sheaf.take()
    assert sheaf.strands[1].waiting_bytes == 0
