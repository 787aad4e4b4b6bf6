"""How long a client will wait, from its header to the end of its patience."""

from __future__ import annotations

import math

import msgspec
import pytest

from services.gateway.core import deadline, streams
from services.gateway.core.question import Choice, NoChoice
from services.gateway.core.refusal import Refusal, sooner, unavailable
from services.gateway.core.stream import Fail, Phase, Stream, StreamPolicy

POLICY = StreamPolicy()
NOBODY = NoChoice(reason="Nobody.", may_change=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None), ("", None), ("  ", None), ("1500", 1.5), (" 250 ", 0.25), ("+40.5", 0.0405), ("1", 0.001),
        ("600000", 600.0), ("999999999999", 86_400.0),
    ],
)  # fmt: skip
def test_a_number_of_milliseconds_is_read(text: str | None, seconds: float | None) -> None:
    assert deadline.read(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["0", "0.0", "-5", "nan", "inf", "1e3", "5s", "0x10", "1,000", "٣", "9" * 16, "1 2"])
def test_anything_else_is_the_clients_mistake(text: str) -> None:
    why = deadline.read(text)
    assert isinstance(why, Refusal)
    assert (why.status, why.param, why.heals) == (400, "x-request-timeout-ms", False)
    assert len(why.message) < 160


def stream(*, whole: bool, **changes: object) -> Stream:
    fresh = Stream(request_id="r", began_s=10.0, since_s=10.0, replica_id="a")
    return msgspec.structs.replace(deadline.with_deadline(fresh, 2.0, whole=whole), **changes)


def failure(step: streams.Step) -> Refusal | None:
    return next((action.refusal for action in step[1] if isinstance(action, Fail)), None)


@pytest.mark.parametrize("phase", [Phase.ASKED, Phase.QUEUED, Phase.ACCEPTED])
def test_no_token_in_time_is_a_504_and_the_replica_is_told(phase: Phase) -> None:
    waits = stream(whole=False, phase=phase, since_s=11.99)
    assert streams.tick(waits, POLICY, 11.99) == (waits, ())
    step = streams.tick(waits, POLICY, 12.0)
    why = failure(step)
    assert why is not None
    assert (why.status, why.code, why.heals) == (504, "deadline_exceeded", True)
    assert step[1][0] == streams.abandon(waits, why.message, tell=True)


@pytest.mark.parametrize("whole", [True, False])
def test_who_reads_a_stream_waits_for_its_beginning_and_who_does_not_for_its_end(whole: bool) -> None:
    running = stream(whole=whole, phase=Phase.STREAMING, shown=True, since_s=12.4)
    assert deadline.left_s(running, 11.0) == (1.0 if whole else math.inf)
    assert (failure(streams.tick(running, POLICY, 12.5)) is not None) is whole


def test_nobody_is_asked_any_more_once_the_time_is_over() -> None:
    choice = Choice(replica_id="b", pool_id="p", incarnation="i", reason="", rule="first")
    assert failure(streams.chosen(stream(whole=False), choice, POLICY, 11.9)) is None
    late = failure(streams.chosen(stream(whole=False), choice, POLICY, 12.0))
    assert late is not None
    assert late.status == 504
    said = unavailable("Busy.", code="overloaded", retry_after_s=4.0)
    assert failure(streams.chosen(stream(whole=False, last_refusal=said), NOBODY, POLICY, 12.0)) == said


def test_without_a_header_there_is_no_such_end() -> None:
    fresh = Stream(request_id="r", began_s=10.0, phase=Phase.STREAMING, shown=True, since_s=9e5)
    assert deadline.with_deadline(fresh, None, whole=True) == fresh
    assert failure(streams.tick(fresh, POLICY, 9e5)) is None


def test_of_replicas_that_are_busy_the_one_that_is_free_first_says_when() -> None:
    busy = [unavailable("Busy.", code="overloaded", retry_after_s=wait_s) for wait_s in (7.0, 3.0, 5.0)]
    said = None
    for why in busy:
        said = sooner(said, why)
    assert said == busy[1]
    draining = unavailable("Draining.", code="draining")
    assert sooner(said, draining) == draining, "another trouble is the news"
