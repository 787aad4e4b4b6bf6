"""`make isolation`: does every answer come from the adapter that it names? Into reports/isolation.json.

Ten thousand requests over canaries and the base on two replicas with eight slots each, while aliases move, operators
load and unload, slots are evicted and clients leave. With `--planted MODULE` the fleet is then started again with one
fault after another in its replicas, and the same judge has to see each of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from infra.local.layout import Layout
from infra.local.temporary import temporary_fleet
from infra.models.fetch import ensure_base_model
from loadtest.isolation_planted import planted_fleet
from loadtest.isolation_stage import REPLICA_IDS, SLOTS, Outcome, Stage, build, deployment, run, set_up, settings_of
from loadtest.report import Figure, table, write_report

FAULTS = ("slot_off_by_one", "digests_swapped", "prefixes_shared")
NO_PROOF = "no_proof"
"""With it a replica believes that a load put the right bytes into the slot, as one without the proof would."""
PROVEN = ("slot_off_by_one", "digests_swapped")
"""The faults that a replica's own proof of effect notices before any answer does: each on a replica of its own."""
BY_PROOF = tuple(f"{replica_id}:{fault}" for replica_id, fault in zip(REPLICA_IDS, PROVEN, strict=True))
PLANTED_REQUESTS = 300
REAL_MODEL = "smollm2"


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """A finished run, and the fleet's home to start it again from. `settings` are the fleet's."""

    home: Path
    settings: dict[str, str]
    stage: Stage
    outcome: Outcome


def main() -> int:
    words = _arguments()
    with tempfile.TemporaryDirectory(prefix="lorafleet-isolation-") as folder:
        found = measure(_model(words.model), Path(folder), words.requests)
        planted = plant_all(found, words.planted) if words.planted else {}
    for sentence in found.outcome.tally.findings:
        _say(sentence)
    figures = {**isolation_figures(found.outcome, words.requests), **planted_figures(planted)}
    _say(table(figures))
    _say(f"written {write_report('isolation', figures, words.reports)}")
    return 1 if any(figure.met is False for figure in figures.values()) else 0


def measure(model: Path, folder: Path, requests: int) -> Isolation:
    """Build, deploy, ask; the fleet is stopped when this returns. Everything stays in `folder`."""
    deployed = deployment()
    canaries = build(model, deployed, folder / "canaries")
    settings, home = settings_of(model, canaries), folder / "fleet"
    with temporary_fleet(home, **settings) as fleet:
        stage = uvloop.run(set_up(fleet, deployed, canaries))
        _say(f"{len(canaries.folders)} canaries are active; {requests} requests")
        outcome = uvloop.run(run(fleet, stage, requests))
    _say(f"{requests} requests took {outcome.tally.wall_s:.0f} s")
    return Isolation(home=home, settings=settings, stage=stage, outcome=outcome)


def plant_all(found: Isolation, module: str) -> dict[tuple[str, ...], Outcome]:
    """Every fault as the judge alone has to see it, and those that the proof sees, with the proof on."""
    wanted = [*((fault, NO_PROOF) for fault in FAULTS), BY_PROOF]
    return {faults: plant(found, module, faults) for faults in wanted}


def plant(found: Isolation, module: str, faults: Sequence[str]) -> Outcome:
    """A short run on the same fleet with these faults."""
    with planted_fleet(found.home, found.settings, module, faults) as fleet:
        outcome = uvloop.run(run(fleet, found.stage, PLANTED_REQUESTS))
    _say(f"{' with '.join(faults)}: {dict(outcome.tally.wrong)} of {outcome.tally.completed} completed")
    return outcome


def isolation_figures(outcome: Outcome, requests: int) -> dict[str, Figure]:
    """The targets see to it that a run in which little happened does not pass for one in which nothing went wrong."""
    tally, counted = outcome.tally, outcome.counted
    found = {
        "completed": (tally.completed, f">= {requests * 0.9:g}"),
        "completed.base": (tally.of_base, f">= {requests * 0.05:g}"),
        "wrong_marker": (tally.wrong["wrong_marker"], "<= 0"),
        "missing_marker": (tally.wrong["missing_marker"], "<= 0"),
        "aborted": (tally.aborted, f">= {requests * 0.02:g}"),
        "refused": (sum(tally.refused.values()), f"<= {requests * 0.01:g}"),
        "alias_moves": (tally.operations["move"], f">= {requests * 0.005:g}"),
        "loads": (counted.loads, f">= {requests * 0.1:g}"),
        "evictions": (counted.evictions, f">= {requests * 0.1:g}"),
        "distinct_per_batch": (round(counted.mean_distinct(), 2), ">= 1.5"),
        "distinct_per_batch.max": (counted.most_distinct(), f">= {SLOTS}"),
        "steps_with_4_adapters": (counted.steps_with(4), f">= {requests * 0.05:g}"),
    }
    figures = {name: Figure(value=value, unit="", target=target) for name, (value, target) in found.items()}
    return {**figures, "duration_s": Figure(value=round(tally.wall_s, 1), unit="s")}


def planted_figures(planted: Mapping[tuple[str, ...], Outcome]) -> dict[str, Figure]:
    if not planted:
        return {}
    caught = sum(seen_by_judge(outcome) for faults, outcome in planted.items() if NO_PROOF in faults)
    proven = len(seen_by_proof(planted[BY_PROOF]))
    return {
        "planted_faults_caught": Figure(value=caught, unit="", target=f">= {len(FAULTS)}"),
        "planted_faults_caught.by_proof": Figure(value=proven, unit="", target=f">= {len(PROVEN)}"),
    }


def seen_by_judge(outcome: Outcome) -> bool:
    return outcome.tally.wrong.total() > 0


def seen_by_proof(outcome: Outcome) -> set[str]:
    """Of BY_PROOF: the faults whose replica refused what it could not prove. None if anything wrong was said."""
    if outcome.tally.wrong:
        return set()
    return {fault for fault, refused in zip(PROVEN, outcome.counted.unproven, strict=True) if refused}


def _model(given: str) -> Path:
    return (
        ensure_base_model(Layout(Path(".lorafleet").resolve()).models, None, _say)
        if given == REAL_MODEL
        else Path(given)
    )


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(
        prog="python -m loadtest.isolation", description="Does every adapter speak for itself?"
    )
    words.add_argument("--model", default=REAL_MODEL, help=f"a base model's folder (default: {REAL_MODEL}, packaged)")
    words.add_argument("--requests", type=int, default=10_000)
    words.add_argument(
        "--planted", metavar="MODULE", help="then start the fleet by MODULE, with faults in its replicas"
    )
    words.add_argument("--reports", type=Path, default=Path("reports"), help="the report's folder")
    return words.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
