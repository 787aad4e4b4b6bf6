"""What the live fleet did, beside what the twin says of the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.report import Figure
from loadtest.twin.figures import Figures

_TIERS = ("gpu", "ram", "disk", "remote")


def figures(live: Mapping[str, Any], twin: Figures, core_share: Mapping[str, float]) -> dict[str, Figure]:
    """`live` is the load driver's summary, `core_share` what each group of processes took of a processor."""
    found = {
        "minutes": _figure(live["duration"] / 60, "min"),
        "requests": _figure(live["requests"], ""),
        "failed_requests": _figure(live["failed"], "", "<= 0"),
        "ttft_ms.p50": _figure(live["median_ttft_ms"], "ms"),
        "ttft_ms.p95": _figure(live["p95_ttft_ms"], "ms", "<= 1000"),
        "ttft_ms.p99": _figure(live["p99_ttft_ms"], "ms"),
        "worst_adapter_ttft_ms.p95": _figure(live["by_adapter"]["worst_p95_ttft_ms"], "ms"),
        "tpot_ms.p50": _figure(live["median_tpot_ms"], "ms"),
        "tokens_per_s": _figure(live["output_throughput"], "1/s"),
        "schedule_delay_ms.p99": _figure(live["p99_schedule_delay_ms"], "ms"),
        **{f"share_found_in_{tier}": _figure(_share(live, tier), "") for tier in _TIERS},
        **_twins(twin),
    }
    if twin.ttft is not None and live["p95_ttft_ms"] is not None:
        found["ttft_p95_vs_twin"] = _figure(live["p95_ttft_ms"] / (1000 * twin.ttft.p95_s), "")
    return {**found, **{f"core_share.{name}": _figure(share, "") for name, share in core_share.items()}}


def _twins(twin: Figures) -> dict[str, Figure]:
    times = twin.ttft
    return {
        "ttft_ms.p50.twin": _figure(None if times is None else 1000 * times.p50_s, "ms"),
        "ttft_ms.p95.twin": _figure(None if times is None else 1000 * times.p95_s, "ms"),
        "ttft_ms.p99.twin": _figure(None if times is None else 1000 * times.p99_s, "ms"),
        "share_found_in_gpu.twin": _figure(twin.gpu_hit, ""),
        "tokens_per_s.twin": _figure(twin.tokens_per_s, "1/s"),
    }


def _share(live: Mapping[str, Any], tier: str) -> float:
    found = live["by_tier"].get(tier, {"completed": 0})["completed"]
    return found / max(1, live["completed"])


def _figure(value: float | None, unit: str, target: str | None = None) -> Figure:
    return Figure(value=None if value is None else float(f"{value:.4g}"), unit=unit, target=target)
