"""From what a fleet did in the twin to whether that is good enough."""

from __future__ import annotations

from msgspec.structs import replace

from loadtest.plots.planning import PlanPoint
from loadtest.twin.figures import Figures, figures
from loadtest.twin.outcome import Outcome

NEVER_S = float("inf")


def point(outcome: Outcome, replicas: int) -> PlanPoint:
    """What a fleet of so many replicas did after its warm-up. Without a single first token all waits are endless."""
    return point_of(figures(outcome), replicas, outcome)


def point_of(found: Figures, replicas: int, outcome: Outcome) -> PlanPoint:
    waits = found.ttft
    worst = [p95_s for p95_s in (found.customers_p95_max_s, found.customers_tail_p95_s) if p95_s is not None]
    made = PlanPoint(
        replicas=replicas,
        ttft_p50_s=waits.p50_s if waits else NEVER_S,
        ttft_p95_s=waits.p95_s if waits else NEVER_S,
        ttft_p99_s=waits.p99_s if waits else NEVER_S,
        worst_customer_p95_s=max(worst, default=NEVER_S),
        gpu_hit=found.gpu_hit,
        gpu_or_ram_hit=found.gpu_or_ram_hit,
        loads_per_1000=found.loads_per_1000_requests,
        max_over_mean=found.max_over_mean or 1.0,
        failed_share=sum(found.failed.values()) / max(1, found.requests),
        usd_per_hour=replicas * outcome.usd_per_replica_hour,
    )
    return replace(made, misses=misses(made, found, outcome.objective_s))


def misses(made: PlanPoint, found: Figures, objective_s: float) -> str:
    """The first thing that falls short, as half a sentence; "" if nothing does."""
    own_s, tail_s = found.customers_p95_max_s or 0.0, found.customers_tail_p95_s or 0.0
    if made.failed_share > 0:
        return f"{made.failed_share:.2%} of requests failed"
    if made.ttft_p95_s >= objective_s:
        return f"the p95 of the time to first token is {made.ttft_p95_s:.2f} s"
    if own_s >= objective_s:
        return f"a customer's own p95 is {own_s:.2f} s"
    if tail_s >= objective_s:
        return f"the p95 of all customers with few requests is {tail_s:.2f} s"
    return ""
