"""However an answer is cut into pieces on its way, it is the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.driver.answer import Answer
from tests.unit.driver.stage import DONE, EVENTS, WHOLE, chunk, chunked, event, head, said, sized

ENDINGS = {
    "chunks": chunked(*WHOLE),
    "one chunk": chunked(b"".join(WHOLE)),
    "cut anywhere": head(200, EVENTS, "Transfer-Encoding: Chunked", "X-Adapter-Tier: ram")
    + b"".join(chunk(b"".join(WHOLE)[at : at + 11]) for at in range(0, len(b"".join(WHOLE)), 11))
    + b"0\r\nx-trailer: 1\r\n\r\n",
    "named chunks": chunked(*WHOLE).replace(b"\r\ndata", b";name=value\r\ndata"),
    "sized": sized(200, b"".join(WHOLE), EVENTS, "x-adapter-tier: ram"),
    "lines as on Windows": chunked(*(one.replace(b"\n", b"\r\n") for one in WHOLE)),
    "with spaces and comments": chunked(b": hello\n\n", *(one.replace(b'":', b'": ') for one in WHOLE), b": bye\n\n"),
}


def read(pieces: Sequence[bytes], *, keep_text: bool = True) -> Answer:
    """Each comes a second after the one before, and only the last is the end."""
    answer = Answer(keep_text=keep_text)
    over = [answer.feed(piece, float(now_s)) for now_s, piece in enumerate(pieces)]
    assert over == [False] * (len(pieces) - 1) + [True]
    return answer


def check(answer: Answer) -> None:
    assert answer.outcome() == ("ok", "")
    assert answer.text() == "MARKA"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)
    assert answer.events.pieces == 3
    assert answer.header("x-adapter-tier") == "ram"
    assert answer.events.times_s == sorted(answer.events.times_s)


@pytest.mark.parametrize("whole", ENDINGS.values(), ids=ENDINGS)
def test_byte_by_byte(whole: bytes) -> None:
    check(read([whole[at : at + 1] for at in range(len(whole))]))


@pytest.mark.parametrize("whole", ENDINGS.values(), ids=ENDINGS)
def test_cut_in_two_at_every_place(whole: bytes) -> None:
    for at in range(1, len(whole)):
        check(read([whole[:at], whole[at:]]))


@given(st.sampled_from(sorted(ENDINGS)), st.lists(st.integers(1, 1_200), unique=True, max_size=12))
def test_cut_anywhere(ending: str, cuts: list[int]) -> None:
    whole = ENDINGS[ending]
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    check(read([whole[low:high] for low, high in pairwise(places)]))


def test_the_first_token_is_the_first_chunk_with_choices_and_the_last_is_not_the_usage() -> None:
    begun = head(200, EVENTS, "transfer-encoding: chunked")
    answer = read([begun, *map(chunk, WHOLE), b"0\r\n\r\n"])
    assert answer.events.times_s == [1.0, 2.0, 3.0]


def test_tokens_that_come_together_have_one_moment_and_are_all_counted() -> None:
    begun = head(200, EVENTS, "transfer-encoding: chunked")
    answer = read([begun + chunk(said("a")), chunk(said("b") * 4), chunk(said("", "stop") + DONE) + b"0\r\n\r\n"])
    assert answer.events.times_s == [0.0, 1.0, 2.0]
    assert answer.events.pieces == 6


def test_a_text_cannot_pass_for_the_end_or_the_middle_of_a_stream() -> None:
    strange = '"finish_reason":null "finish_reason":"stop"\n\ndata: [DONE]\n\n'
    begun = head(200, EVENTS, "transfer-encoding: chunked")
    answer = Answer(keep_text=True)
    for now_s, piece in enumerate([begun, chunk(said("a")), chunk(said(strange)), chunk(said("b"))]):
        assert not answer.feed(piece, float(now_s))
    assert answer.events.pieces == 3
    assert answer.outcome()[0] == "cut off"
    assert answer.text() == f"a{strange}b"


def test_nothing_is_kept_that_nobody_wants() -> None:
    assert read([chunked(*WHOLE)], keep_text=False).text() == ""


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (chunked(said("MAR"), said("K")), "cut off", "without a finish reason"),
        (chunked(said("MAR"), DONE), "cut off", "without a finish reason"),
        (chunked(said("MAR", "stop")), "cut off", "without a finish reason"),
        (chunked(said("MAR"), event({"error": {"message": "Replica lost."}})), "error event", "Replica lost."),
        (chunked(event({"error": "plain words"})), "error event", "plain words"),
        (chunked(said("", "stop"), event({"error": None}), DONE), "ok", ""),
        (sized(503, b'{"error":{"message":"No owner.","type":"x"}}'), "503", "No owner."),
        (sized(502, b"<html>Bad gateway</html>"), "502", "<html>Bad gateway</html>"),
        (sized(429, b""), "429", ""),
        (sized(200, b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'), "ok", ""),
        (sized(200, b'{"choices":[{"message":{"content":"Hi"}}]}'), "cut off", "without a finish reason"),
        (sized(200, b'{"error":{"message":"Not today."}}'), "error event", "Not today."),
    ],
)
def test_whatever_is_no_whole_answer_is_named(answer: bytes, outcome: str, reason: str) -> None:
    for pieces in ([answer], [answer[at : at + 1] for at in range(len(answer))]):
        found = read(pieces).outcome()
        assert found[0] == outcome
        assert reason in found[1]


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"x" * 70_000,
        head(200, EVENTS, "content-length: many"),
        head(200, EVENTS, "transfer-encoding: chunked") + b"zz\r\n",
        head(200, EVENTS, "transfer-encoding: chunked") + b"-5\r\n",
        chunked(*WHOLE) + b"more",
        sized(200, b"".join(WHOLE), EVENTS) + b"more",
        chunked(b"data: {\n\n"),
        sized(200, b"not JSON"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Answer().feed(answer, 0.0)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answer = Answer(keep_text=True)
    assert not answer.feed(head(200, "content-type: application/json", "connection: close"), 0.0)
    assert not answer.feed(b'{"choices":[{"message":{"content":"Hi"},', 1.0)
    assert not answer.feed(b'"finish_reason":"length"}],"usage":{"completion_tokens":1}}', 2.0)
    assert answer.outcome()[0] == "cut off"
    answer.closed()
    assert (answer.outcome()[0], answer.text(), answer.cut_short) == ("ok", "Hi", True)
