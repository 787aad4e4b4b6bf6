"""Stop strings: the same result however the text is cut, and nothing of the stop is ever sent."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.replica_worker.text.stop import StopStrings

TEXT = st.text(alphabet="abc ", max_size=30)
STOPS = st.lists(st.text(alphabet="abc ", min_size=1, max_size=4), max_size=4)


def fed(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher = StopStrings(stops)
    sent = "".join(matcher.push(piece) for piece in pieces)
    return sent + matcher.flush(), matcher.stopped


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """Character by character, with no thought of holding anything back."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(stops=STOPS, text=TEXT, cuts=st.lists(st.integers(0, 30), max_size=8))
@example(stops=["abcd", "bc"], text="xabcd", cuts=[])
@example(stops=["ab", "b"], text="ab", cuts=[1])
def test_c78_result_is_the_same_streamed_or_not(stops: list[str], text: str, cuts: list[int]) -> None:
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(at)]
    assert fed(stops, pieces) == expected(stops, text)


def test_c78_stop_spanning_two_tokens_is_not_sent() -> None:
    matcher = StopStrings(["\nUser:"])
    assert matcher.push("Hello.\nUs") == "Hello."
    assert matcher.push("er: hi") == ""
    assert matcher.stopped
    assert matcher.push("more") + matcher.flush() == ""


def test_c78_stop_at_the_first_character_sends_nothing() -> None:
    assert fed(["Hello"], ["Hel", "lo there"]) == ("", True)


def test_c78_four_stops_the_first_complete_one_wins() -> None:
    assert fed(["four", "three", "two", "one"], ["zero o", "ne two", " three"]) == ("zero ", True)


def test_text_that_turns_out_harmless_is_released() -> None:
    matcher = StopStrings(["stop!"])
    assert matcher.push("do not sto") == "do not "
    assert matcher.push("p") == ""
    assert matcher.push("?") == "stop?"
    assert not matcher.stopped


def test_only_what_could_begin_a_stop_is_held() -> None:
    matcher = StopStrings(["END"])
    assert matcher.push("an answer") == "an answer"


def test_end_of_stream_releases_what_was_held() -> None:
    assert fed(["END"], ["the E", "N"]) == ("the EN", False)


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(["ok", ""])
