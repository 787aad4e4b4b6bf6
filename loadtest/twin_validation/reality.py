"""All that is asked of real fleets: first the calibration, then every held-out workload, several times in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from loadtest.calibration.asking import Asker
from loadtest.calibration.measuring import Probed, Run, probe, run_once
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
    """Each workload is run so many times. They take turns, the calibration's among them, so that what changes on the
    machine meanwhile meets all of them."""

    fleet: FleetShape
    workloads: tuple[HeldOut, ...]
    rounds: int
    calibration: TrafficShape | None = None


def play(plan: Plan, home: Path, adapters: Adapters, say: Say) -> tuple[Calibrated | None, list[Real]]:
    """Raises FleetDidNotStart, FleetFailed, HopFailed."""
    with staged(plan.fleet, home, adapters) as stage:
        tokenizing = asyncio.run(_tokenizing(stage))
        calibrating: list[Run] = []
        runs: dict[str, list[Played]] = {each.name: [] for each in plan.workloads}
        for turn in range(plan.rounds):
            if plan.calibration is not None:
                calibrating.append(asyncio.run(run_once(stage, plan.calibration, f"calibration-{turn}")))
                say(f"calibration, run {turn + 1}: {_said(calibrating[-1].seen)}")
            for at, workload in enumerate(plan.workloads):
                played = asyncio.run(real.run(stage, workload, tokenizing, f"run-{at}-{turn}"))
                say(f"{workload.name}, run {turn + 1}: {_said(played.seen)}")
                runs[workload.name].append(played)
        probed = asyncio.run(probe(stage)) if plan.calibration is not None else None
        customers = stage.customers
    return None if probed is None else Calibrated(runs=calibrating, probed=probed), [
        Real(workload=each, shape=plan.fleet, customers=customers, runs=tuple(runs[each.name]))
        for each in plan.workloads
    ]  # fmt: skip


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
