"""How a plan would do: fleets of several sizes in the twin, and the smallest that meets the objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from loadtest.capacity.figures import digits
from loadtest.capacity.judging import point
from loadtest.capacity.model import NotPlannable
from loadtest.capacity.plan import Plan
from loadtest.capacity.scenario import scenario
from loadtest.capacity.search import Bounds, Found, Try, smallest
from loadtest.capacity.trial import Trial
from loadtest.plots.planning import PlanPoint, plan_page
from loadtest.twin.twin import Twin


def in_twin(plan: Plan, trial: Trial) -> Try:
    """One run of the twin for each size."""
    return lambda replicas: point(Twin(scenario(plan, replicas, trial)).run(), replicas)


def simulate(plan: Plan, attempt: Try, tell: Callable[[PlanPoint], None]) -> Found:
    """`tell` hears of every size as soon as it has been tried."""

    def told(replicas: int) -> PlanPoint:
        found = attempt(replicas)
        tell(found)
        return found

    busy = max(1, math.ceil(plan.decoding + plan.prefilling))
    return smallest(told, Bounds(low=busy, expected=plan.replicas, high=2 * plan.replicas))


def row(found: PlanPoint) -> str:
    """One size in a line."""
    return (
        f"  {found.replicas:>4} replicas  p95 {found.ttft_p95_s:7.3f} s  "
        f"worst customer's {found.worst_customer_p95_s:7.3f} s"
        f"  GPU {found.gpu_hit:.2%}, or RAM {found.gpu_or_ram_hit:.2%}  {digits(found.usd_per_hour)} USD/h"
        f"  {found.misses or 'meets the objective'}"
    )


def verdict(plan: Plan, found: Found) -> str:
    """What was found, in a sentence or two."""
    if found.smallest is None:
        return f"No fleet that was tried meets the objective: {found.why_not_fewer}."
    cost = digits(found.smallest * plan.question.usd_per_gpu_hour)
    return (
        f"{found.smallest} replicas meet the objective, for {cost} USD/h; {found.why_not_fewer}. "
        f"With headroom the plan has {plan.replicas}."
    )


def record(trial: Trial, found: Found) -> dict[str, Any]:
    """For scripts."""
    said: dict[str, Any] = msgspec.to_builtins(found)
    return {**said, "for_s": trial.for_s, "seed": trial.seed}


def draw(plan: Plan, trial: Trial, found: Found, folder: Path) -> Sequence[Path]:
    """Writes the picture and its page. Raises NotPlannable without matplotlib, or without a place to write to."""
    try:
        from loadtest.plots.writing import write_page  # only here: figures are to be had without it
    except ImportError as error:
        raise NotPlannable(f"The plot needs matplotlib: pip install 'matplotlib>=3.10' ({error}).") from error
    asked = plan.question
    intro = (
        f"{asked.adapters:,} adapters, {digits(asked.rate_per_s)} requests/s of {digits(asked.prompt_tokens)} + "
        f"{digits(asked.output_tokens)} tokens, Zipf {digits(asked.zipf)}; {digits(trial.for_s)} s of it in the "
        f"twin for every number of replicas. {verdict(plan, found)}"
    )
    page = plan_page(found.points, asked.objective_s, found.smallest, intro)
    conditions = (("seed", str(trial.seed)), ("seconds", digits(trial.for_s)), ("slots", str(plan.slots)))
    try:
        return write_page(msgspec.structs.replace(page, conditions=conditions), folder)
    except OSError as error:
        raise NotPlannable(f"The plot cannot be written to {folder}: {error.strerror}.") from error
