"""What is made of the answers that clients got, and of those that they did not get."""

from __future__ import annotations

import pytest

from loadtest.driver.seen import Seen
from loadtest.overload.plan import Idle, Judged, Span, figures_of, judged

SPAN = Span(for_s=12.0, warm_up_s=2.0)


def seen(outcome: str = "ok", ttft_s: float | None = 0.2, e2el_s: float = 3.0) -> Seen:
    return Seen(at_s=3.0, alias="a/b", outcome=outcome, ttft_s=ttft_s, tpot_s=0.05, e2el_s=e2el_s)


def test_goodput_is_what_began_in_time_and_refusals_are_no_failures() -> None:
    good = [*[seen()] * 30, *[seen(ttft_s=1.01)] * 2]
    found = judged([*good, seen("503", None, 0.02), seen("429", None, 0.03), seen("timeout")], SPAN)
    assert (found.requests, found.refused, found.failed) == (35, 2, 1)
    assert found.goodput_per_s == 3.0
    assert found.p95_ttft_ms == pytest.approx(1_010.0)
    assert found.p95_refusal_ms == pytest.approx(30.0)


def row(goodput_per_s: float, **changes: float) -> Judged:
    plain = {"requests": 100, "refused": 0, "failed": 0, "p95_ttft_ms": 400.0, "p95_refusal_ms": 20.0, "tpot_ms": 50.0}
    return Judged(**{**plain, "goodput_per_s": goodput_per_s, **changes})  # type: ignore[arg-type]


def test_targets_are_missed_by_what_collapses_is_late_or_fails() -> None:
    good = {0.5: row(5.0), 1.0: row(10.0), 3.0: row(9.5)}
    assert all(figure.met is not False for figure in figures_of(good, None).values())
    for planted, name in (
        ({**good, 3.0: row(8.9)}, "goodput_share_of_peak.x3"),
        ({**good, 3.0: row(9.5, p95_ttft_ms=1_200.0)}, "p95_ttft_ms.x3"),
        ({**good, 1.0: row(10.0, failed=1)}, "failed.x1"),
        ({**good, 0.5: row(5.0, refused=2)}, "refused_share.x0.5"),
    ):
        assert [key for key, figure in figures_of(planted, None).items() if figure.met is False] == [name]


def test_idle_connections_are_judged_by_memory_and_pace() -> None:
    idle = Idle(connections=10_000, grown_bytes=150_000_000, before=row(5.0), beside=row(5.0, tpot_ms=56.0))
    figures = figures_of({}, idle)
    assert figures["idle.bytes_per_connection"].met is True
    assert figures["idle.tpot_share"].met is False
