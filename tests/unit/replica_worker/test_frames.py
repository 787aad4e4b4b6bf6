"""Frames: numbered without a gap, kept for a while, never more than a message holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.core.frames import FrameBook, KeepLimits, by_gateway
from shared.contracts.catalog import FRAME, REPLAY
from shared.contracts.codec import decode, encode, encode_reply
from shared.messages.generation import Finish, Frame, Replay, TokenChunk, TokenLogprob, TopToken, Usage


def chunk(request_id: str = "r1", position: int = 0, text: str = "a") -> TokenChunk:
    return TokenChunk(request_id, position, (5,), text)


def book(**limits: int) -> FrameBook:
    return FrameBook("replica-1", "i1", KeepLimits(**limits))


def ask(first: int, last: int, incarnation: str = "i1") -> Replay:
    return Replay(gateway_id="g1", incarnation=incarnation, first=first, last=last)


@given(st.lists(st.tuples(st.sampled_from(["g1", "g2", "g3"]), st.integers(0, 5)), max_size=40))
def test_each_gateway_counts_from_one_without_a_gap(steps: list[tuple[str, int]]) -> None:
    frames = book()
    written: dict[str, list[Frame]] = {}
    for gateway_id, tokens in steps:
        frame = frames.write(gateway_id, [chunk(position=at) for at in range(tokens)], 0.0)
        written.setdefault(gateway_id, []).append(decode(FRAME, encode(FRAME, frame)))
    for gateway_id, sent in written.items():
        assert [frame.number for frame in sent] == list(range(1, len(sent) + 1))
        assert frames.heartbeat(gateway_id).number == len(sent)
        replayed = frames.replay(Replay(gateway_id=gateway_id, incarnation="i1", first=1, last=len(sent)))
        assert (list(replayed.frames), replayed.missing) == (sent, False)


@given(st.lists(st.tuples(st.sampled_from(["g1", "g2"]), st.text("abc", min_size=1, max_size=3)), max_size=20))
def test_the_chunks_of_a_step_are_grouped_and_keep_their_order(pairs: list[tuple[str, str]]) -> None:
    chunks = [(gateway_id, chunk(request_id)) for gateway_id, request_id in pairs]
    grouped = by_gateway(chunks)
    assert sum(map(len, grouped.values())) == len(chunks)
    for gateway_id, own in grouped.items():
        assert own == [each for name, each in chunks if name == gateway_id]


def test_a_heartbeat_repeats_the_last_number_and_is_not_kept() -> None:
    frames = book()
    assert frames.heartbeat("g1").number == 0
    frames.write("g1", [chunk()], 0.0)
    assert frames.heartbeat("g1") == Frame(replica_id="replica-1", incarnation="i1", number=1)
    assert frames.write("g1", [chunk()], 0.0).number == 2


def test_what_is_no_longer_kept_is_missing() -> None:
    frames = book(frames=3)
    for _ in range(5):
        frames.write("g1", [chunk()], 0.0)
    assert [frame.number for frame in frames.replay(ask(3, 5)).frames] == [3, 4, 5]
    assert frames.replay(ask(2, 5)).missing
    assert frames.replay(ask(3, 6)).missing
    assert frames.replay(ask(3, 5, "another")).missing
    assert frames.replay(Replay(gateway_id="g9", incarnation="i1", first=1, last=1)).missing


def test_the_buffer_is_bounded_in_bytes_and_keeps_the_newest() -> None:
    frames = book(size_bytes=1_000)
    for _ in range(10):
        frames.write("g1", [chunk(text="x" * 100)], 0.0)
    assert frames.replay(ask(10, 10)).frames
    assert frames.replay(ask(1, 10)).missing
    frames.write("g1", [chunk(text="x" * 5_000)], 0.0)
    assert frames.replay(ask(11, 11)).frames


def test_an_answer_never_outgrows_a_message() -> None:
    frames = FrameBook("replica-1", "i1")
    for at in range(600):
        frames.write("g1", [chunk(f"r{n}", at, "some text") for n in range(32)], 0.0)
    first = frames.replay(ask(1, 600))
    assert len(encode_reply(REPLAY, first)) < 1 << 20
    assert [frame.number for frame in first.frames] == list(range(1, len(first.frames) + 1))
    rest = frames.replay(ask(len(first.frames) + 1, 600))
    assert rest.frames[0].number == len(first.frames) + 1


def test_one_answer_also_holds_no_more_of_frames_that_tell_log_probabilities() -> None:
    frames = book()
    top = tuple(TopToken(100_000 + at, b" word", -1.5) for at in range(20))
    told = TokenChunk("r1", 0, (5,), "word", None, (TokenLogprob(5, b" word", -0.5, top),))
    for _ in range(600):
        frames.write("g1", [told] * 8, 0.0)
    assert len(encode_reply(REPLAY, frames.replay(ask(1, 600)))) < 1 << 20


def test_a_gateway_that_is_gone_costs_nothing_and_its_numbers_go_on() -> None:
    frames = book()
    frames.write("g1", [chunk()], 1.0)
    assert frames.recent(3.0, within_s=3.0) == {"g1"}
    assert frames.recent(4.5, within_s=3.0) == set()
    frames.forget("g1")
    frames.forget("never heard of")
    assert frames.recent(1.0, within_s=3.0) == set()
    assert frames.replay(ask(1, 1)).missing
    assert frames.write("g1", [chunk()], 5.0).number == 2


def test_a_finish_survives_the_wire() -> None:
    finish = Finish(reason="error", usage=Usage(prompt_tokens=3, completion_tokens=2), error="gone")
    frame = book().write("g1", [TokenChunk("r1", 2, (), "", finish)], 0.0)
    assert decode(FRAME, encode(FRAME, frame)).chunks[0].finish == finish
