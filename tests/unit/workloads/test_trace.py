"""Recorded requests come out as they were written down; a file that is no trace says why.

`synthetic_trace.csv` is invented, in the format of the Azure LLM inference traces; bring the real ones yourself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.workloads.calls import calls
from loadtest.workloads.shape import TrafficShape
from loadtest.workloads.trace import TraceUnreadable, read_trace

SAMPLE = Path(__file__).parent / "synthetic_trace.csv"


def test_a_trace_keeps_times_and_lengths() -> None:
    trace = read_trace(SAMPLE)
    assert trace.at_s[:3] == pytest.approx((0.0, 0.75123, 1.2))
    assert trace.at_s[-1] == pytest.approx(10.0)
    assert trace.pairs[0] == (374, 44)
    assert trace.rate_per_s == pytest.approx(0.7)


def test_a_shape_takes_lengths_and_gaps_from_it() -> None:
    trace = read_trace(SAMPLE)
    shape = TrafficShape(
        customers=3, rate_per_s=trace.rate_per_s, for_s=10.001, lengths=trace.lengths(), arrivals=trace.arrivals()
    )
    found = list(calls(shape))
    assert [call.at_s for call in found] == pytest.approx(trace.at_s[1:], abs=1e-3)
    assert {(call.prompt_tokens, call.output_tokens) for call in found} <= set(trace.pairs)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-05 09:00:00,x,1\n", "line 2, is no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2, is no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-05 09:00:00\n", "line 2, is no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-05 09:00:00,1,1\n", "two different times"),
    ],
)
def test_what_is_no_trace_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceUnreadable, match=sentence):
        read_trace(path)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(TraceUnreadable, match="cannot be read"):
        read_trace(Path("nowhere.csv"))
