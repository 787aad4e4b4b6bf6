"""All that is asked of real fleets: first the calibration, then every held-out workload, several times in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from loadtest.calibration.asking import Asker
from loadtest.calibration.measuring import Probed, Run, climb, probe, run_once
from loadtest.calibration.seen import Seen
from loadtest.calibration.stage import Adapters, Customer, FleetShape, Stage, staged
from loadtest.calibration.traffic import Tokenizing, learn_tokenizing
from loadtest.twin_validation import real
from loadtest.twin_validation.real import Played
from loadtest.twin_validation.workloads import HeldOut
from loadtest.workloads.shape import TrafficShape

Say = Callable[[str], None]


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a workload, run by run; `customers` are those of its fleet."""

    workload: HeldOut
    shape: FleetShape
    customers: tuple[Customer, ...]
    runs: tuple[Played, ...]


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    runs: list[Run]
    probed: Probed


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet, and what it is asked."""

    fleet: FleetShape
    workloads: tuple[HeldOut, ...]


class Calibrating(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is run in so many rounds: all take turns, the calibration's traffic among them, so that what changes
    on the machine meanwhile meets all of them."""

    traffic: TrafficShape
    rounds: int


def play(
    plans: Sequence[Plan], calibrating: Calibrating, place: tuple[Path, Adapters], say: Say
) -> tuple[Calibrated, list[Real]]:
    """All fleets are there all the time: as one that comes after another, each would tell of its own minutes only. The
    first one is calibrated on; the last one has fewer slots than customers. `place`: an empty folder, and the adapters.
    Raises FleetDidNotStart, FleetFailed, HopFailed."""
    home, adapters = place
    with ExitStack() as stages:
        parts = [
            _Part(plan=plan, stage=stages.enter_context(staged(plan.fleet, home / str(at), adapters)))
            for at, plan in enumerate(plans)
        ]
        runs = [_turn(parts, calibrating.traffic, turn, say) for turn in range(calibrating.rounds)]
        probed = asyncio.run(probe(parts[0].stage))
        realities = [real for part in parts for real in part.realities()]
    return Calibrated(runs=runs, probed=probed), realities


class _Part:
    """One of the fleets, and what became of its workloads so far."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self._tokenizing = asyncio.run(_tokenizing(stage))
        self._runs: dict[str, list[Played]] = {each.name: [] for each in plan.workloads}

    def calibrated(self, traffic: TrafficShape, turn: int) -> Run:
        return asyncio.run(run_once(self.stage, traffic, f"calibration-{turn}"))

    def climbed(self, turn: int) -> list[Seen]:
        return asyncio.run(climb(self.stage, f"climbing-{turn}"))

    def play(self, turn: int, say: Say) -> None:
        for at, workload in enumerate(self.plan.workloads):
            played = asyncio.run(real.run(self.stage, workload, self._tokenizing, f"run-{at}-{turn}"))
            say(f"{workload.name}, run {turn + 1}: {_said(played.seen)}")
            self._runs[workload.name].append(played)

    def realities(self) -> list[Real]:
        return [
            Real(
                workload=each, shape=self.plan.fleet, customers=self.stage.customers, runs=tuple(self._runs[each.name])
            )
            for each in self.plan.workloads
        ]


def _turn(parts: Sequence[_Part], traffic: TrafficShape, turn: int, say: Say) -> Run:
    """The calibration, of the first fleet and how the last one fills its few slots; and every workload once."""
    run = parts[0].calibrated(traffic, turn)
    run = msgspec.structs.replace(run, from_ram=parts[-1].climbed(turn))
    say(f"calibration, run {turn + 1}: {_said(run.seen)}")
    for part in parts:
        part.play(turn, say)
    return run


async def _tokenizing(stage: Stage) -> Tokenizing:
    asker = Asker(stage.fleet.connection.url)
    try:
        return await learn_tokenizing(asker, stage.customers[0], "held-out")
    finally:
        asker.close()


def _said(seen: Sequence[Seen]) -> str:
    good = sum(each.outcome == "ok" for each in seen)
    late_s = max(each.sent_s - each.planned_s for each in seen)
    return f"{good} of {len(seen)} requests, sent at most {1000 * late_s:.0f} ms late"
