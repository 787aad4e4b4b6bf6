"""Both sides' requests become the same figures."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.seen import Seen
from loadtest.twin.outcome import Answered
from loadtest.twin_validation.answers import figures, of_client, of_twin


def _seen(at_s: float, ttft_s: float, tokens: int = 10, outcome: str = "ok") -> Seen:
    return Seen(
        request_id=f"r{at_s}", adapter=0, planned_s=at_s - 0.001, sent_s=at_s, first_s=at_s + ttft_s,
        ended_s=at_s + ttft_s + 1.0, outcome=outcome, tier="gpu", replica="replica-0", tokens=tokens, attempts=1,
    )  # fmt: skip


def _answered(seen: Seen) -> Answered:
    return Answered(
        seen.sent_s, 0, 0, seen.ttft_s, seen.ended_s, seen.outcome, seen.tier, seen.replica, "owner", seen.tokens, 1
    )


def test_the_same_requests_have_the_same_figures_on_both_sides() -> None:
    seen = [_seen(float(at), 0.01 * (at + 1)) for at in range(20)]
    assert figures(of_client(seen), 2.0) == figures(of_twin(map(_answered, seen)), 2.0)


def test_what_came_during_the_warm_up_or_failed_does_not_count() -> None:
    slow, good, failed = _seen(1.0, 0.9), _seen(3.0, 0.1, tokens=22), _seen(4.0, 0.5, outcome="cut off")
    found = figures(of_client([slow, good, failed]), 2.0)
    assert (found.requests, found.failed, found.tiers) == (2, 1, {"gpu": 1})
    assert (found.ttft_p50_s, found.ttft_p95_s) == pytest.approx((0.1, 0.1))
    assert found.tokens_per_s == pytest.approx(22 / 1.1)


def test_times_to_first_token_begin_when_a_request_was_sent() -> None:
    late = msgspec.structs.replace(_seen(3.0, 0.2), planned_s=1.0)
    assert figures(of_client([late]), 0.0).ttft_p50_s == pytest.approx(0.2)


def test_a_run_in_which_nothing_ended_well_has_no_figures() -> None:
    with pytest.raises(ValueError, match="none of 1"):
        figures(of_client([_seen(3.0, 0.2, outcome="503")]), 0.0)
