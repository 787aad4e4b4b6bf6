"""`make autoscaling-report`: the autoscaler through a day with bursts in the twin, beside an oracle.

Writes `reports/autoscaling.json` and its plot into `docs/plots/`.
"""

from __future__ import annotations

import argparse
import math
import random
from functools import partial
from pathlib import Path

import msgspec

from loadtest import autoscaling_judging as judging
from loadtest.capacity.scenario import scenario
from loadtest.capacity.trial import Trial
from loadtest.plots.scaling import scaling_page
from loadtest.plots.writing import write_page
from loadtest.report import REPORTS, table, write_report
from loadtest.routing_runs import fleet_a
from loadtest.twin.scenario import Scaling, Scenario
from loadtest.twin.twin import Twin
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Bursts, Day, Surge, TrafficShape
from services.autoscaler.core.policy import ScalePolicy

PLOTS = REPORTS.parent / "docs/plots"
PEAK_PER_S = 40.0
TROUGH = 0.3
CUSTOMERS = 1_000
START_S = 30.0
"""Base model 14 s at 1 GB/s, and as long again for the process and its first adapters."""
POLICY = ScalePolicy(min_replicas=2, max_replicas=60)
SEED = 7

_INTRO = (
    "A day in {hours:g} hours on replicas of fleet A: the load rises from {trough:.0%} to its peak of {peak:g} "
    "requests/s and falls again, gaps have a coefficient of variation of 2, and {surges:g} times an hour everybody "
    "calls {least:g} to {most:g} times as often for some minutes. The oracle has, in every minute, as few replicas as "
    "keep the utilisation that the autoscaler aims at."
)


class DayKind(msgspec.Struct, frozen=True, kw_only=True):
    """How high a day is, and its surges: so many an hour, how long, and by which factor."""

    peak_per_s: float = PEAK_PER_S
    trough: float = TROUGH
    an_hour: float = 1.0
    lasting_s: tuple[float, float] = (120.0, 600.0)
    factors: tuple[float, float] = (1.2, 1.8)


KINDS = {
    "day": DayKind(),
    "restless": DayKind(peak_per_s=24.0, trough=0.6, an_hour=2.0, lasting_s=(60.0, 300.0), factors=(1.5, 2.5)),
}


def shape(hours: float, seed: int, kind: DayKind = KINDS["day"]) -> TrafficShape:
    """A night first."""
    for_s, pause_s = 3600 * hours, 3600 / kind.an_hour
    draw = random.Random(seed)
    surges, at_s = [], draw.expovariate(1 / pause_s)
    while at_s < for_s:
        surges.append(Surge(at_s=at_s, for_s=draw.uniform(*kind.lasting_s), factor=draw.uniform(*kind.factors)))
        at_s += surges[-1].for_s + draw.expovariate(1 / pause_s)
    return TrafficShape(
        customers=CUSTOMERS,
        rate_per_s=kind.peak_per_s,
        for_s=for_s,
        seed=seed,
        arrivals=Bursts(cv=2.0),
        day=Day(trough=kind.trough, peak_at_s=for_s / 2, length_s=for_s),
        surges=tuple(surges),
    )


def scaled(traffic: TrafficShape) -> Scenario:
    """As many replicas as its first minutes take, and the autoscaler from then on."""
    plan = fleet_a(CUSTOMERS, PEAK_PER_S)
    whole = Trial(for_s=traffic.for_s, warm_up_s=0.0, seed=traffic.seed)
    base = scenario(plan, math.ceil(TROUGH * plan.replicas), whole)
    [pool] = base.pools
    return msgspec.structs.replace(
        base,
        calls=partial(calls, traffic),
        scaling=Scaling(pools=(pool,), policy=POLICY, start_s=START_S),
    )


def requests_per_replica() -> float:
    """A second, at the utilisation that the autoscaler aims at: a request is its share of tokens and of prompts."""
    plan = fleet_a(CUSTOMERS, 1.0)
    return POLICY.need.utilisation / (plan.decoding + plan.prefilling)


def main() -> None:
    arguments = _arguments()
    kind = KINDS[arguments.kind]
    outcome = Twin(scaled(shape(arguments.hours, arguments.seed, kind))).run()
    day = judging.day_of(outcome, requests_per_replica())
    figures = judging.figures(outcome, day)
    speed = outcome.simulated_s / outcome.wall_s
    print(f"{len(outcome.requests):,} requests, {outcome.simulated_s:.0f} s at {speed:.0f} times life")
    conditions = {
        "day": arguments.kind, "seed": str(arguments.seed), "hours": f"{arguments.hours:g}",
        "a replica starts in": f"{START_S:g} s",
    }  # fmt: skip
    said = {name.removeprefix("autoscaler.").replace("_", " "): str(figure) for name, figure in figures.items()}
    least, most = kind.factors
    intro = _INTRO.format(
        hours=arguments.hours, trough=kind.trough, peak=kind.peak_per_s, surges=kind.an_hour, least=least, most=most
    )
    page = scaling_page(day, said, intro, conditions)
    written = [*write_page(page, arguments.plots), write_report("autoscaling", figures, arguments.reports, conditions)]
    print(table(figures), *written, sep="\n")


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(
        prog="python -m loadtest.autoscaling_report", description="How good is the scaling?"
    )
    words.add_argument("--hours", type=float, default=4.0, help="that the day takes")
    words.add_argument("--seed", type=int, default=SEED, help="of the calls and of the surges")
    words.add_argument("--kind", choices=sorted(KINDS), default="day", help="the shape of its load")
    words.add_argument("--reports", type=Path, default=REPORTS, help="the report's folder")
    words.add_argument("--plots", type=Path, default=PLOTS, help="the plots' folder")
    return words.parse_args()


if __name__ == "__main__":
    main()
