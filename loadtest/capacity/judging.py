"""From what a fleet did in the twin to whether that is good enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from msgspec.structs import replace

from loadtest.measures import quantile
from loadtest.plots.planning import PlanPoint
from loadtest.twin.outcome import Answered, Outcome, Second

LEAST_REQUESTS = 20
"""With fewer a customer has no p95 of its own (one late request is more than 5 %); those customers count as one."""


def point(outcome: Outcome, replicas: int) -> PlanPoint:
    """Requests that arrived after the warm-up; one without a first token waited until it ended."""
    counted = [each for each in outcome.requests if each.arrived_s >= outcome.warm_up_s]
    waits_s = sorted(map(wait_s, counted))
    failed = sum(each.outcome != "ok" for each in counted) / len(counted)
    customer, worst_s = worst_customer(counted)
    found = PlanPoint(
        replicas=replicas,
        ttft_p50_s=quantile(waits_s, 0.5),
        ttft_p95_s=quantile(waits_s, 0.95),
        ttft_p99_s=quantile(waits_s, 0.99),
        worst_customer_p95_s=worst_s,
        gpu_hit=_share(counted, "gpu"),
        gpu_or_ram_hit=_share(counted, "gpu", "ram"),
        loads_per_1000=1000 * _loads(outcome) / len(counted),
        max_over_mean=max_over_mean(outcome),
        failed_share=failed,
        usd_per_hour=replicas * outcome.usd_per_replica_hour,
    )
    return replace(found, misses=_misses(found, customer, outcome.objective_s))


def wait_s(answered: Answered) -> float:
    """Until its first token; until it ended, if none came."""
    return answered.ended_s - answered.arrived_s if answered.ttft_s is None else answered.ttft_s


def worst_customer(answered: Sequence[Answered]) -> tuple[str, float]:
    """Who has the largest p95 of its own, and that p95."""
    own: dict[int, list[float]] = defaultdict(list)
    for each in answered:
        own[each.tenant].append(wait_s(each))
    frequent = {f"customer {tenant}": waits for tenant, waits in own.items() if len(waits) >= LEAST_REQUESTS}
    rare = [wait for waits in own.values() if len(waits) < LEAST_REQUESTS for wait in waits]
    groups = frequent | ({"the customers with few requests": rare} if rare else {})
    p95s = {name: quantile(waits, 0.95) for name, waits in groups.items()}
    name = max(p95s, key=p95s.__getitem__)
    return name, p95s[name]


def max_over_mean(outcome: Outcome) -> float:
    """The mean of `balance`; 1 if nothing was ever in flight."""
    ratios = balance(outcome)
    return fmean(ratios) if ratios else 1.0


def balance(outcome: Outcome) -> list[float]:
    """Tokens in flight of the fullest replica over the mean of all, at every second after the warm-up."""
    return [ratio for second in counted_seconds(outcome) if (ratio := _ratio(second)) is not None]


def counted_seconds(outcome: Outcome) -> list[Second]:
    return [second for second in outcome.seconds if outcome.warm_up_s <= second.at_s <= outcome.for_s]


def _ratio(second: Second) -> float | None:
    tokens = [replica.tokens_in_flight for replica in second.replicas if not replica.draining]
    return max(tokens) * len(tokens) / sum(tokens) if sum(tokens) else None


def _loads(outcome: Outcome) -> int:
    seconds = counted_seconds(outcome)
    first, last = (sum(replica.loads for replica in second.replicas) for second in (seconds[0], seconds[-1]))
    return last - first


def _share(answered: Sequence[Answered], *tiers: str) -> float:
    return sum(each.tier in tiers for each in answered) / len(answered)


def _misses(found: PlanPoint, customer: str, objective_s: float) -> str:
    if found.failed_share > 0:
        return f"{found.failed_share:.2%} of requests failed"
    if found.ttft_p95_s >= objective_s:
        return f"the p95 of the time to first token is {found.ttft_p95_s:.2f} s"
    if found.worst_customer_p95_s >= objective_s:
        return f"the p95 of {customer} is {found.worst_customer_p95_s:.2f} s"
    return ""
