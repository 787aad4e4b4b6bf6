"""Where tokens wait: when a reader wakes, and what its first look decides."""

from __future__ import annotations

import asyncio
from asyncio import Transport
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from services.gateway.core import refusal
from services.gateway.core.stream import Deliver
from services.gateway.io.line import Flow, Line, Turn
from services.gateway.io.outlet import Outlet
from services.gateway.io.spout import Spout
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


class PaperTransport:
    """Of a connection, what reached it."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, content: bytes) -> None:
        self.written += content

    def abort(self) -> None:
        self.aborted = True


class BrokenTransport(PaperTransport):
    def write(self, content: bytes) -> None:
        raise RuntimeError("the handle is closed")


class PaperFlow:
    stalled = False


def said(piece: Deliver) -> bytes:
    return piece.text.encode()


def flowing(write: Callable[[Deliver], bytes] = said) -> tuple[Outlet, Spout, PaperTransport, PaperFlow]:
    transport, flow = PaperTransport(), PaperFlow()
    line = Line(cast(Transport, transport), cast(Flow, flow), Turn())
    outlet, spout = opened(streaming=True), Spout(line, write)
    outlet.put(token("early "))
    outlet.flow(spout)
    return outlet, spout, transport, flow


async def test_what_flows_is_one_write_a_turn_and_wakes_nobody_before_the_end() -> None:
    outlet, _, transport, _ = flowing()
    outlet.put(token("a"))
    outlet.put(token("b"))
    assert transport.written == b""
    await asyncio.sleep(0)
    assert transport.written == b"8\r\nearly ab\r\n"
    outlet.open(ACCEPTED)  # another replica goes on
    assert not outlet.wake.is_set()
    outlet.put(token("c", END))
    assert outlet.wake.is_set()
    assert outlet.take() == [token("c", END)]


async def test_a_first_token_does_not_wait_for_the_end_of_its_turn() -> None:
    transport = PaperTransport()
    spout = Spout(Line(cast(Transport, transport), cast(Flow, PaperFlow()), Turn()), said)
    spout.put(msgspec.structs.replace(token("a"), first=True))
    assert transport.written == b"1\r\na\r\n"


async def test_a_stalled_line_keeps_the_order_and_is_counted() -> None:
    outlet, spout, transport, flow = flowing()
    flow.stalled = True
    outlet.put(token("x" * 1_000))
    await asyncio.sleep(0)
    assert transport.written == b""
    assert outlet.waiting_bytes > 1_000
    flow.stalled = False
    spout.flush()  # as the line does when there is room
    assert transport.written.startswith(b"3ee\r\nearly xxx")
    assert outlet.waiting_bytes == 0


async def test_what_flows_before_a_failure_stays_before_it() -> None:
    outlet, spout, _, _ = flowing()
    outlet.put(token("a"))
    outlet.fail(NO)
    assert outlet.wake.is_set()
    assert (spout.rest(), outlet.take()) == (b"early a", [NO])


async def test_a_piece_that_cannot_be_written_ends_its_own_connection_and_raises_nothing() -> None:
    def broken(piece: Deliver) -> bytes:
        raise ValueError(piece.text)

    _, _, transport, _ = flowing(broken)
    assert transport.aborted


async def test_what_comes_at_once_after_a_gap_is_not_held_against_a_quick_reader() -> None:
    outlet, _, transport, _ = flowing()
    for _ in range(300):
        outlet.put(token("x" * 1_000))
    assert outlet.waiting_bytes < 100_000
    await asyncio.sleep(0)
    assert transport.written.count(b"x") == 300_000


async def test_a_connection_that_cannot_be_written_to_takes_no_other_of_its_turn_with_it() -> None:
    turn = Turn()
    broken, sound = BrokenTransport(), PaperTransport()
    for transport in (broken, sound):
        line = Line(cast(Transport, transport), cast(Flow, PaperFlow()), turn)
        Spout(line, said).put(token("a"))
    await asyncio.sleep(0)
    assert broken.aborted
    assert sound.written == b"1\r\na\r\n"
