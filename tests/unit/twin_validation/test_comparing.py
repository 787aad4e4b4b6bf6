"""Errors are measured against the real fleet's mean, and what is allowed against its own spread."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.twin_validation.answers import RunFigures
from loadtest.twin_validation.comparing import Result, figures_of


def _run(tokens_per_s: float = 100.0, p50_s: float = 0.010, p95_s: float = 0.050, failed: int = 0) -> RunFigures:
    return RunFigures(
        requests=40, failed=failed, tokens_per_s=tokens_per_s, ttft_p50_s=p50_s, ttft_p95_s=p95_s, tiers={"gpu": 40}
    )


SAME = Result(workload="4 slots, Zipf 1.5", real=(_run(), _run(), _run()), twin=(_run(), _run()))


def test_a_twin_that_says_the_same_has_no_error() -> None:
    found = figures_of([SAME])
    assert {name: found[name].value for name in ("twin.throughput_err", "twin.ttft_p50_err", "twin.ttft_p95_err")} == {
        "twin.throughput_err": 0.0, "twin.ttft_p50_err": 0.0, "twin.ttft_p95_err": 0.0,
    }  # fmt: skip
    assert found["4_slots_zipf_15.ttft_p95.real"].value == 50.0
    assert all(figure.met is not False for figure in found.values())


@pytest.mark.parametrize("planted", [_run(p95_s=0.060), _run(p95_s=0.040)], ids=["too late", "too early"])
def test_a_planted_error_of_the_tail_is_seen(planted: RunFigures) -> None:
    found = figures_of([SAME, msgspec.structs.replace(SAME, workload="other", twin=(planted,))])
    assert found["twin.ttft_p95_err"].value == pytest.approx(0.2)
    assert found["other.ttft_p95_err"].met is False
    assert found["twin.ttft_p95_err"].met is False
    assert found["twin.throughput_err"].met is True


def test_a_planted_error_of_throughput_is_seen() -> None:
    found = figures_of([msgspec.structs.replace(SAME, twin=(_run(tokens_per_s=93.0),))])
    assert found["twin.throughput_err"].value == pytest.approx(0.07)
    assert found["twin.throughput_err"].met is False


def test_where_the_fleet_scatters_twice_its_spread_is_allowed() -> None:
    scattered = msgspec.structs.replace(
        SAME, real=(_run(p95_s=0.040), _run(p95_s=0.060)), twin=(_run(p95_s=0.065),)
    )  # fmt: skip
    found = figures_of([scattered])
    assert found["4_slots_zipf_15.ttft_p95_spread"].value == pytest.approx(0.2)
    assert found["twin.ttft_p95_err"].value == pytest.approx(0.3)
    assert found["twin.ttft_p95_err"].target == "<= 0.4000"
    assert found["twin.ttft_p95_err"].met is True


def test_the_worst_is_the_one_that_is_worst_for_what_it_was_allowed() -> None:
    wide = msgspec.structs.replace(SAME, real=(_run(p95_s=0.040), _run(p95_s=0.060)), twin=(_run(p95_s=0.060),))
    narrow = msgspec.structs.replace(SAME, workload="narrow", twin=(_run(p95_s=0.0575),))
    assert figures_of([wide, narrow])["twin.ttft_p95_err"].value == pytest.approx(0.15)


def test_seeds_of_the_twin_are_averaged() -> None:
    found = figures_of([msgspec.structs.replace(SAME, twin=(_run(p95_s=0.045), _run(p95_s=0.055)))])
    assert found["twin.ttft_p95_err"].value == 0.0
