"""What stands between a step and its client, and whose it is."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.calibration.company import undisturbed_s
from loadtest.calibration.overheads import Between, Overheads, fit_overheads, prefill_s, split
from loadtest.twin.figures import nearest
from loadtest.twin.timing import MeasuredTable
from tests.unit.calibration.engines import CHUNK_TOKENS, KnownTimes, seen_of

TIMES = KnownTimes(jitter_s=(-0.002, 0.0, 0.002))
MORE_S = tuple(TIMES.prompt_s + TIMES.prompt_token_s * tokens for tokens in (2, CHUNK_TOKENS))
TABLE = MeasuredTable(
    rows=(1, 2),
    prefill_tokens=(0, 2, CHUNK_TOKENS),
    mean_s=tuple((own_s, own_s + MORE_S[0], own_s + MORE_S[1]) for own_s in (TIMES.step_s(1, []), TIMES.step_s(2, []))),
)


def test_overheads_are_what_steps_do_not_explain() -> None:
    found = fit_overheads(undisturbed_s(seen_of(TIMES, requests=300, rate_per_s=1.0), TABLE, CHUNK_TOKENS))
    assert found.mean_s == pytest.approx(TIMES.way_s + TIMES.relay_s, rel=0.1)
    assert sum(found.jitter_s) == pytest.approx(0.0, abs=1e-9)
    assert nearest(found.jitter_s, 0.05) == pytest.approx(-0.002, rel=0.2)
    assert nearest(found.jitter_s, 0.95) == pytest.approx(0.002, rel=0.2)


def test_late_requests_are_no_more_in_the_twin_than_in_life() -> None:
    """One in thirty met something else that the machine did; with one in twenty each would be p95."""
    found = fit_overheads([0.005 + 0.0001 * (at % 10) + 0.040 * (at % 30 == 0) for at in range(300)])
    late = sum(found.mean_s + each > 0.040 for each in found.jitter_s)
    assert late / len(found.jitter_s) == pytest.approx(1 / 30, abs=0.005)


def test_a_long_prompt_takes_several_steps() -> None:
    alone_s = TABLE.step_s(1, 128, 1) * 2 + TABLE.step_s(1, 44, 1)
    assert prefill_s(300, TABLE, CHUNK_TOKENS) == pytest.approx(alone_s)
    assert prefill_s(256, TABLE, CHUNK_TOKENS) == pytest.approx(2 * TABLE.step_s(1, 128, 1))


def test_the_parts_add_up() -> None:
    seen = seen_of(TIMES, requests=50, rate_per_s=1.0)
    inside_s = sum(each.ttft_s or 0.0 for each in seen) / len(seen) - 0.003
    parts = split(_overheads(0.005), seen, Between(in_worker_s=inside_s, after_gateway_s=0.001, bus_s=0.0005))
    assert parts == pytest.approx({"bus_s": 0.0005, "relay_s": 0.001, "gateway_s": 0.001, "worker_s": 0.002})


@pytest.mark.parametrize("between", [
    Between(in_worker_s=9.0, after_gateway_s=0.1, bus_s=0.1),
    Between(in_worker_s=0.0, after_gateway_s=0.1, bus_s=0.1),
], ids=["more in the worker than there is", "nothing in the worker"])  # fmt: skip
def test_no_part_is_below_zero(between: Between) -> None:
    parts = split(_overheads(0.005), seen_of(TIMES, requests=50, rate_per_s=1.0), between)
    assert min(parts.values()) >= 0.0
    assert parts["bus_s"] * 2 + parts["relay_s"] + parts["gateway_s"] + parts["worker_s"] == pytest.approx(0.005)


def test_requests_of_other_tiers_do_not_count_as_the_workers() -> None:
    seen = seen_of(TIMES, requests=50, rate_per_s=1.0)
    cold = [msgspec.structs.replace(each, tier="disk", first_s=each.sent_s + 9.0) for each in seen[:5]]
    between = Between(in_worker_s=0.01, after_gateway_s=0.0, bus_s=0.0)
    assert split(_overheads(0.005), seen + cold, between) == split(_overheads(0.005), seen, between)


def _overheads(mean_s: float) -> Overheads:
    return Overheads(mean_s=mean_s, jitter_s=(0.0,))
