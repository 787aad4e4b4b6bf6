"""The live fleet's figures, beside the twin's."""

from __future__ import annotations

import pytest

from loadtest.driver.figures import Asked, summary
from loadtest.driver.seen import Collected, Seen
from loadtest.fleet_live.figures import figures
from loadtest.fleet_live.stage import ADAPTER_BYTES, REAL_ADAPTER_BYTES, policy
from loadtest.twin.figures import figures as twin_figures
from loadtest.twin.presets import Size, fleet_a
from loadtest.twin.twin import Twin


def run(*seen: Seen) -> Collected:
    collected = Collected()
    for one in seen:
        collected.add(one, [], 0)
    return collected


def ok(ttft_s: float, tier: str = "gpu") -> Seen:
    return Seen(
        at_s=0.0, alias="bench/voice-0:prod", outcome="ok", tier=tier, ttft_s=ttft_s, tpot_s=0.05, e2el_s=10.0, tokens=9
    )


@pytest.fixture(scope="module")
def twin():
    return twin_figures(Twin(fleet_a(Size(replicas=2, rate_per_s=1.0, adapters=10, minutes=0.5))).run())


def test_a_run_is_told_beside_the_twin_of_the_same_fleet(twin) -> None:
    live = summary(run(ok(0.2), ok(0.4, "ram")), Asked(request_rate=40.0))
    found = figures(live, twin, {"gateway": 0.3})
    assert found["failed_requests"].met
    assert found["ttft_ms.p95"].value == 400.0
    assert found["share_found_in_ram"].value == 0.5
    assert found["ttft_ms.p95.twin"].value == pytest.approx(1000 * twin.ttft.p95_s, rel=1e-3)
    assert found["ttft_p95_vs_twin"].value == pytest.approx(0.4 / twin.ttft.p95_s, rel=1e-3)
    assert found["core_share.gateway"].value == 0.3


def test_one_failure_is_too_many(twin) -> None:
    refused = Seen(at_s=0.0, alias="bench/voice-0:prod", outcome="503", reason="No.")
    found = figures(summary(run(ok(0.2), refused), Asked()), twin, {})
    assert found["failed_requests"].met is False


def test_small_files_take_as_long_as_whole_adapters() -> None:
    assert ADAPTER_BYTES / policy("b").link_bytes_per_s == pytest.approx(REAL_ADAPTER_BYTES / 10e9)
