"""`make twin-report`: what the twin says of workloads that it was not calibrated on, beside what the fleet then does.

Starts two fleets of its own, calibrates the twin on the first with one workload, and runs every held-out workload
several times. Writes `reports/twin.json`, the timing into `reports/timings/`, and plots into
`docs/plots/`. About fourteen minutes, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from infra.local.temporary import FleetDidNotStart
from loadtest.calibration.hops import HopFailed
from loadtest.calibration.measuring import FleetFailed, calibration_traffic
from loadtest.calibration.prompts import TooLittleSeen
from loadtest.calibration.reckoning import reckon
from loadtest.calibration.stage import CHUNK_TOKENS, FleetShape, write_adapters
from loadtest.calibration.text import lines
from loadtest.plots.validation import validation_page
from loadtest.plots.writing import write_page
from loadtest.report import REPORTS, table, write_report
from loadtest.twin.measured import Measured, write_measured
from loadtest.twin.sequence import BatchShape
from loadtest.twin_validation import twinned
from loadtest.twin_validation.answers import figures, of_client, of_twin
from loadtest.twin_validation.comparing import Result, figures_of
from loadtest.twin_validation.reality import Calibrating, Plan, Real, play
from loadtest.twin_validation.workloads import CUSTOMERS, ROOMY, SLOTS, TIGHT, held_out

PLOTS = REPORTS.parent / "docs/plots"
RATE_PER_S = 6.0
TWIN_SEEDS = (1, 2, 3, 4, 5)

_INTRO = (
    "The twin was calibrated on one workload of the embedded fleet ({engine} engine, {model}), and then asked about "
    "these, which it had not seen. Each ran {rounds} times on the real fleet, and {seeds} times in the twin."
)


def main() -> int:
    words = _arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="lorafleet-twin-") as folder:
            measured, realities = _reality(words, Path(folder))
    except (FleetDidNotStart, FleetFailed, HopFailed, TooLittleSeen) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(*lines(measured), sep="\n")
    results = [_result(each, measured) for each in realities]
    found = figures_of(results)
    conditions = {
        **measured.conditions,
        "real runs of each": f"{words.rounds} of {words.seconds:g} s",
        "twin seeds": " ".join(map(str, TWIN_SEEDS)),
    }
    told = {"engine": words.engine, "model": words.model.name, "rounds": words.rounds, "seeds": len(TWIN_SEEDS)}
    intro = _INTRO.format(**told)
    page = validation_page([each.compared for each in results], intro, conditions)
    timing = write_measured(measured, words.reports / f"timings/{words.model.name}-{words.engine}.json")
    written = [*write_page(page, words.plots), timing, write_report("twin", found, words.reports, conditions)]
    print(table(found), *written, sep="\n")
    return 1 if any(figure.met is False for figure in found.values()) else 0


def _reality(words: argparse.Namespace, folder: Path) -> tuple[Measured, list[Real]]:
    """Everything that needs a fleet."""
    roomy = FleetShape(model=words.model, engine=words.engine, slots=SLOTS[ROOMY])
    adapters = write_adapters(roomy, folder / "adapters", CUSTOMERS)
    workloads = held_out(words.seconds)
    plans = [
        Plan(fleet=fleet, workloads=tuple(each for each in workloads if each.fleet == name))
        for name, fleet in ((ROOMY, roomy), (TIGHT, replace(roomy, slots=SLOTS[TIGHT])))
    ]
    traffic = calibration_traffic(CUSTOMERS, RATE_PER_S, words.seconds)
    calibrated, realities = play(plans, Calibrating(traffic=traffic, rounds=words.rounds), (folder, adapters), _say)
    batch = BatchShape(chunk_tokens=CHUNK_TOKENS[words.engine], kv_tokens=65_536)
    conditions = {"engine": words.engine, "model": words.model.name, "calibrated at": f"{RATE_PER_S:g} requests/s"}
    return reckon(calibrated.runs, calibrated.probed, batch, conditions), realities


def _result(reality: Real, measured: Measured) -> Result:
    workload = reality.workload
    known = twinned.Known(shape=reality.shape, customers=reality.customers, measured=measured)
    outcomes = [twinned.run(known, workload, reality.runs[0], seed) for seed in TWIN_SEEDS]
    return Result(
        workload=workload.name,
        real=tuple(figures(of_client(run.seen), workload.warm_up_s) for run in reality.runs),
        twin=tuple(figures(of_twin(each.requests), workload.warm_up_s) for each in outcomes),
    )


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.twin_validation", description="How true is the twin?")
    words.add_argument("--model", type=Path, required=True, help="the base model's folder")
    words.add_argument("--engine", choices=sorted(CHUNK_TOKENS), default="torch")
    words.add_argument("--seconds", type=float, default=20.0, help="of traffic in each run")
    words.add_argument("--rounds", type=int, default=3, help="runs of each workload on the real fleet")
    words.add_argument("--reports", type=Path, default=REPORTS, help="the report's folder")
    words.add_argument("--plots", type=Path, default=PLOTS, help="the plots' folder")
    return words.parse_args()


if __name__ == "__main__":
    sys.exit(main())
