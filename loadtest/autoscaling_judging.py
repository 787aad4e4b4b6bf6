"""What a day of the autoscaler comes to, beside somebody who knew it in advance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from loadtest.plots.scaling import ScaledDay
from loadtest.report import Figure
from loadtest.twin.outcome import Answered, Outcome, Second

MINUTE_S = 60.0


def day_of(outcome: Outcome, requests_per_replica: float) -> ScaledDay:
    """Minute by minute. The oracle has as few replicas as carry what really arrives in the minute, with
    `requests_per_replica` a second on each."""
    arrived, late = Counter[int](), Counter[int]()
    for each in outcome.requests:
        minute = int(each.arrived_s // MINUTE_S)
        arrived[minute] += 1
        late[minute] += is_late(each, outcome.objective_s)
    minutes = range(int(outcome.for_s // MINUTE_S))
    there = _mean_by_minute(outcome.seconds)
    return ScaledDay(
        at_s=tuple(minute * MINUTE_S for minute in minutes),
        requests_per_s=tuple(arrived[minute] / MINUTE_S for minute in minutes),
        replicas=tuple(there.get(minute, 0.0) for minute in minutes),
        oracle=tuple(float(max(1, math.ceil(arrived[minute] / MINUTE_S / requests_per_replica))) for minute in minutes),
        late_share=tuple(late[minute] / arrived[minute] if arrived[minute] else 0.0 for minute in minutes),
    )


def figures(outcome: Outcome, day: ScaledDay) -> dict[str, Figure]:
    late = sum(is_late(each, outcome.objective_s) for each in outcome.requests)
    hours, oracle_hours = (sum(column) / 60 for column in (day.replicas, day.oracle))
    turns = reversals(outcome.seconds)
    tokens = sum(each.tokens for each in outcome.requests)
    failed = sum(each.outcome != "ok" for each in outcome.requests)
    return {
        "autoscaler.in_objective": _figure(1 - late / len(outcome.requests), "", ">= 0.97"),
        "autoscaler.gpu_hours_over_oracle": _figure(hours / oracle_hours, "", "<= 1.15"),
        "autoscaler.reversals_per_10_min": _figure(len(turns) / (outcome.for_s / 600), "", "<= 1"),
        "autoscaler.reversals": _figure(len(turns), ""),
        "autoscaler.gpu_hours": _figure(hours, "h"),
        "autoscaler.oracle_gpu_hours": _figure(oracle_hours, "h"),
        "autoscaler.always_peak_gpu_hours": _figure(max(day.oracle) * len(day.at_s) / 60, "h"),
        "autoscaler.failed_share": _figure(failed / len(outcome.requests), "", "<= 0"),
        "autoscaler.usd_per_million_tokens": _figure(hours * outcome.usd_per_replica_hour / tokens * 1e6, "USD"),
        "autoscaler.requests": _figure(len(outcome.requests), ""),
        "autoscaler.broken_invariants": _figure(len(outcome.broken), "", "<= 0"),
    }


def reversals(seconds: Sequence[Second]) -> list[float]:
    """When the wish for replicas, of all pools together, changed its direction."""
    turns: list[float] = []
    direction = 0
    for before, after in pairwise(seconds):
        change = sum(after.wishes.values()) - sum(before.wishes.values()) if before.wishes else 0
        if change * direction < 0:
            turns.append(after.at_s)
        direction = change or direction
    return turns


def is_late(answered: Answered, objective_s: float) -> bool:
    """Its first token came after the objective, or never."""
    return answered.ttft_s is None or answered.ttft_s > objective_s


def _mean_by_minute(seconds: Sequence[Second]) -> dict[int, float]:
    """Replicas that cost money: those that start are paid for too."""
    there, count = Counter[int](), Counter[int]()
    for second in seconds:
        minute = int(second.at_s // MINUTE_S)
        there[minute] += len(second.replicas) + second.starting
        count[minute] += 1
    return {minute: there[minute] / count[minute] for minute in count}


def _figure(value: float, unit: str, target: str | None = None) -> Figure:
    return Figure(value=float(f"{value:.4g}"), unit=unit, target=target)
