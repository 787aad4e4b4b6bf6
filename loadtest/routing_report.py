"""`make routing-report`: strategies of routing on one replay, and fleet A of the spec, in the twin.

Writes `reports/routing.json`, and what it shows into `docs/plots/`: the same seed, code and matplotlib give the same
bytes. A few minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from loadtest import routing_judging as judging
from loadtest import routing_runs as runs
from loadtest.capacity import simulation
from loadtest.capacity.trial import Trial
from loadtest.plots.routing import RoutingRun, routing_page
from loadtest.plots.writing import write_page
from loadtest.report import REPORTS, Figure, table, write_report
from loadtest.twin.outcome import Outcome
from loadtest.twin.scenario import Scenario
from loadtest.twin.twin import Twin

PLOTS = REPORTS.parent / "docs/plots"
_OBJECTIVE_S = 1.0

_INTRO = (
    "Fleet A of the spec in the twin: {replicas} replicas of 250 slots, 40 requests/s of 750 + 250 tokens, Zipf 1.0. "
    "Every strategy gets the same requests. Affinity sends an adapter's requests to its owners, bounded affinity looks "
    "elsewhere while an owner has more than 1.25 times the mean in flight, and the others look at load or at nothing."
)


def main() -> None:
    arguments = _arguments()
    whole, each = (_trial(minutes) for minutes in (arguments.fleet_minutes, arguments.minutes))
    conditions = {"seed": str(runs.SEED), "fleet A": _said(whole), "each strategy": _said(each)}
    figures = judging.fleet_figures(_ran("fleet A", runs.whole(whole)))
    figures |= _smallest(whole, arguments.plots)
    compared = [_compared(adapters, strategy, each) for adapters in runs.SIZES for strategy in runs.STRATEGIES]
    figures |= judging.comparison(compared)
    figures |= judging.rise_figures(_ran("a customer rises", runs.rising(each)), runs.HOT_TENANT, runs.HOT_AT_S)
    figures["moved_share"] = _moved()
    page = routing_page(compared, _OBJECTIVE_S, _INTRO.format(replicas=runs.REPLICAS), conditions)
    written = [*write_page(page, arguments.plots), write_report("routing", figures, arguments.reports, conditions)]
    print(table(figures), *written, sep="\n")


def _trial(minutes: float) -> Trial:
    """A third of it for slots to fill with what is asked for."""
    return Trial(for_s=60 * minutes, warm_up_s=20 * minutes, seed=runs.SEED)


def _said(trial: Trial) -> str:
    return f"{trial.for_s:g} s, of which the first {trial.warm_up_s:g} do not count"


def _ran(what: str, scenario: Scenario) -> Outcome:
    outcome = Twin(scenario).run()
    speed = outcome.simulated_s / outcome.wall_s
    print(
        f"{what}: {len(outcome.requests):,} requests, {outcome.simulated_s:.0f} s at {speed:.0f} times life", flush=True
    )
    return outcome


def _compared(adapters: int, strategy: str, trial: Trial) -> RoutingRun:
    outcome = _ran(f"{strategy}, {adapters:,} adapters", runs.compared(adapters, strategy, trial))
    return judging.run_of(strategy, adapters, outcome)


def _smallest(trial: Trial, plots: Path) -> dict[str, Figure]:
    """The smallest fleet A that meets the objective, with its plot; and by how much one replica fewer misses it."""
    fleet = runs.fleet_a()
    found = simulation.simulate(
        fleet, simulation.in_twin(fleet, trial), lambda size: print(simulation.row(size), flush=True)
    )
    simulation.draw(fleet, trial, found, plots)
    print(simulation.verdict(fleet, found))
    fewer = [point for point in found.points if found.smallest is not None and point.replicas == found.smallest - 1]
    figures = {"fleet_a.min_replicas": Figure(value=found.smallest, unit="", target="<= 22")}
    for point in fewer:
        figures["fleet_a.one_fewer.ttft_p95_s"] = Figure(value=round(point.ttft_p95_s, 3), unit="s")
        figures["fleet_a.one_fewer.worst_customer_p95_s"] = Figure(value=round(point.worst_customer_p95_s, 3), unit="s")
    return figures


def _moved() -> Figure:
    share = judging.moved_share(5_000, runs.REPLICAS)
    return Figure(value=round(share, 5), unit="", target=f"<= {1.3 / runs.REPLICAS:.5f}")


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.routing_report", description="How good is the routing?")
    words.add_argument("--minutes", type=float, default=3.0, help="of traffic for every strategy and size")
    words.add_argument("--fleet-minutes", type=float, default=12.0, help="of traffic for fleet A and its smaller sizes")
    words.add_argument("--reports", type=Path, default=REPORTS, help="the report's folder")
    words.add_argument("--plots", type=Path, default=PLOTS, help="the plots' folder")
    return words.parse_args()


if __name__ == "__main__":
    main()
