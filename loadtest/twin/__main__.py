"""`python -m loadtest.twin --preset fleet-a`: a fleet in virtual time, and its figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from loadtest.twin.figures import Figures, figures
from loadtest.twin.measured import NoTiming, played_with, read_measured
from loadtest.twin.presets import PRESETS, Size
from loadtest.twin.scenario import Scenario
from loadtest.twin.text import lines
from loadtest.twin.twin import Twin


def main(argv: list[str]) -> int:
    given = _parser().parse_args(argv)
    try:
        scenario = _scenario(given)
    except NoTiming as error:
        sys.stderr.write(f"{error}\n")
        return 2
    outcome = Twin(scenario).run()
    found = figures(outcome)
    sys.stdout.write(_json(found) if given.json else "\n".join(lines(found)) + "\n")
    for sentence in outcome.broken:
        sys.stderr.write(f"broken: {sentence}\n")
    return 1 if outcome.broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.twin", description=__doc__)
    add = parser.add_argument
    add("--preset", choices=sorted(PRESETS), default="fleet-a")
    add("--replicas", type=int, help="instead of the preset's")
    add("--rate", type=float, help="requests a second")
    add("--adapters", type=int)
    add("--zipf", type=float, help="the exponent of customers' popularity")
    add("--minutes", type=float, default=15.0)
    add("--warm-up", type=float, default=5.0, help="minutes at the beginning that do not count")
    add("--strategy", choices=("affinity", "random", "least_loaded", "round_robin"), default="affinity")
    add("--unbounded", action="store_true", help="no bound on a replica's share of the load")
    add("--margin-tokens", type=int)
    add("--margin-requests", type=float)
    add("--check-every", type=int, default=100_000, help="events between two looks at the invariants")
    add("--timing", type=Path, help="a file of `make calibrate`: its times instead of the preset's")
    add("--seed", type=int, default=1)
    add("--json", action="store_true")
    return parser


def _scenario(given: argparse.Namespace) -> Scenario:
    size = Size(
        replicas=given.replicas, rate_per_s=given.rate, adapters=given.adapters, zipf=given.zipf,
        minutes=given.minutes, warm_up_minutes=given.warm_up, seed=given.seed,
    )  # fmt: skip
    scenario = PRESETS[given.preset](size)
    margins = {"margin_tokens": given.margin_tokens, "margin_requests": given.margin_requests}
    chosen = {name: value for name, value in margins.items() if value is not None}
    routing = msgspec.structs.replace(
        scenario.routing, strategy=given.strategy, bounded=not given.unbounded, **chosen
    )  # fmt: skip
    scenario = msgspec.structs.replace(scenario, routing=routing, check_every=given.check_every)
    return scenario if given.timing is None else played_with(scenario, read_measured(given.timing))


def _json(found: Figures) -> str:
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
