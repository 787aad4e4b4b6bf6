"""Figures for people to read."""

from __future__ import annotations

from loadtest.twin.figures import Figures, Quantiles


def lines(found: Figures) -> list[str]:
    return [
        f"{found.requests} requests, {sum(found.failed.values())} failed {found.failed or ''}".rstrip(),
        f"first token      {_times(found.ttft)}",
        *(f"  found in {tier:<7}{_times(times)}" for tier, times in found.ttft_by_tier.items()),
        f"customers        worst own p95 {_seconds(found.customers_p95_max_s)}, {found.customers_late} above the"
        f" objective; the tail's p95 {_seconds(found.customers_tail_p95_s)}",
        f"in objective     {found.in_objective:.4f}",
        f"hits             gpu {found.gpu_hit:.4f}, gpu or ram {found.gpu_or_ram_hit:.5f}",
        f"turnover         {found.loads_per_min_replica:.2f} loads and {found.evictions_per_min_replica:.2f} evictions"
        f" a minute and replica, {found.loads_per_1000_requests:.1f} loads a thousand requests",
        f"balance          max over mean {_plain(found.max_over_mean)} (p95 {_plain(found.max_over_mean_p95)})"
        f" in the {found.busy_share:.0%} of the time above 70 % of the rows; {found.utilisation:.0%} taken on average",
        f"tokens           {found.tokens_per_s:.0f} a second, {_plain(found.usd_per_million_tokens)} USD a million",
        f"routed           {', '.join(f'{rule} {count}' for rule, count in found.rules.items())}",
        f"simulated        {found.simulated_s:.0f} s, {found.speed_x:.0f} times as fast as life",
    ]


def _times(times: Quantiles | None) -> str:
    if times is None:
        return "none"
    return f"p50 {times.p50_s:.3f} s, p95 {times.p95_s:.3f} s, p99 {times.p99_s:.3f} s of {times.count}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
