"""The line that says how far something has come."""

from __future__ import annotations

import io

import pytest

from services.console.core.progress import Pace, batch_line, duration, size, upload_line
from services.console.io.progress import ProgressLine


def test_an_upload_has_a_bar_a_rate_and_an_end() -> None:
    pace = Pace(done=100_000_000, total=400_000_000, before=20_000_000, elapsed_s=4.0)
    assert upload_line("support", pace) == (
        "support [######..................]  25% 100 MB of 400 MB, 20.0 MB/s, 15 s left"
    )


def test_what_was_there_before_does_not_make_it_look_fast() -> None:
    assert Pace(done=50, total=100, before=50, elapsed_s=4.0).left_s is None
    assert "waiting" in upload_line("a", Pace(done=0, total=0, before=0, elapsed_s=0.0))


def test_a_batch_counts_what_became_of_each() -> None:
    pace = Pace(done=1200, total=5000, before=0, elapsed_s=10.0)
    assert batch_line({"in": 1190, "rejected": 10}, pace) == "1200 of 5000: 1190 in, 10 rejected, 120/s, 32 s left"
    assert batch_line({}, Pace(done=0, total=9, before=0, elapsed_s=1.0)) == "0 of 9: none yet, 0/s, waiting"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (4.2e9, "4.2 GB")]
)
def test_sizes_are_read_easily(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3661, "1 h 1 min")]
)
def test_durations_are_read_easily(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *moments_s: float) -> str:
    """What is on the stream after a line was shown at each of these moments."""
    moments = iter((0.0, *moments_s))
    now_s = [0.0]

    def look() -> float:
        now_s[0] = next(moments)
        return now_s[0]

    with ProgressLine(stream, 10, look) as line:
        for _ in moments_s:
            line.show(lambda: f"at {now_s[0]:.2f} of many")
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_written_over_and_goes() -> None:
    assert shown(Terminal(), 0.0, 0.05, 0.1) == "\r\x1b[Kat 0.00 o\r\x1b[Kat 0.10 o\r\x1b[K"


def test_elsewhere_there_is_a_line_every_few_seconds_and_none_for_what_is_quick() -> None:
    assert shown(io.StringIO(), 0.0, 4.9) == ""
    assert shown(io.StringIO(), 0.0, 5.0, 5.1, 9.0, 11.0) == "at 5.00 of many\nat 11.00 of many\n"
