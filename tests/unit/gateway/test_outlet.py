"""Where tokens wait: when a reader wakes, and what its first look decides."""

from __future__ import annotations

import pytest

from services.gateway.core import refusal
from services.gateway.core.stream import Deliver
from services.gateway.io.outlet import Outlet
from shared.messages.generation import Accepted, Finish, Usage

ACCEPTED = Accepted(request_id="q", replica_id="r", incarnation="i", tier="gpu", prompt_tokens=1, seed=1)
END = Finish(reason="stop", usage=Usage(prompt_tokens=1, completion_tokens=1))
NO = refusal.failed("No.", code="x")


def token(text: str, finish: Finish | None = None) -> Deliver:
    return Deliver(text=text, token_ids=(1,), first=False, finish=finish)


def opened(*, streaming: bool) -> Outlet:
    outlet = Outlet(streaming=streaming)
    outlet.open(ACCEPTED)
    return outlet


def test_a_streaming_reader_wakes_for_the_head_and_for_every_token() -> None:
    outlet = opened(streaming=True)
    assert outlet.wake.is_set()
    assert outlet.verdict() == ACCEPTED
    assert outlet.take() == []
    outlet.put(token("a"))
    outlet.put(token("b"))
    assert outlet.wake.is_set()
    assert outlet.take() == [token("a"), token("b")]
    assert not outlet.wake.is_set()


def test_another_reader_wakes_at_the_end() -> None:
    outlet = opened(streaming=False)
    outlet.put(token("a"))
    assert not outlet.wake.is_set()
    outlet.put(token("b", END))
    assert outlet.wake.is_set()
    assert outlet.verdict() == ACCEPTED


@pytest.mark.parametrize("streaming", [True, False])
def test_a_failure_before_the_head_is_a_status(streaming: bool) -> None:
    outlet = Outlet(streaming=streaming)
    outlet.fail(NO)
    assert outlet.verdict() == NO


@pytest.mark.parametrize(("streaming", "verdict"), [(True, ACCEPTED), (False, NO)])
def test_a_failure_after_a_token_is_a_status_only_if_nothing_was_sent(streaming: bool, verdict: object) -> None:
    outlet = opened(streaming=streaming)
    outlet.put(token("a"))
    outlet.fail(NO)
    assert outlet.verdict() == verdict


def test_a_failure_right_after_the_head_was_known_is_still_a_status() -> None:
    outlet = opened(streaming=True)
    outlet.fail(NO)
    assert outlet.verdict() == NO


def test_the_bytes_that_wait_are_counted() -> None:
    outlet = opened(streaming=False)
    outlet.put(token("x" * 1_000))
    assert outlet.waiting_bytes > 1_000
    outlet.take()
    assert outlet.waiting_bytes == 0
