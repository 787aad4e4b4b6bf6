"""`make calibrate`: measure how long things take on a replica of this machine, for the twin.

    python -m loadtest.calibration --model FOLDER [--engine torch] [--out FILE]

Starts a fleet of its own, asks it for a minute, and writes a timing that `python -m loadtest.twin --timing FILE`
takes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from infra.local.temporary import FleetDidNotStart
from loadtest.calibration.hops import HopFailed
from loadtest.calibration.measuring import FleetFailed, Probed, Run, calibration_traffic, probe, run_once
from loadtest.calibration.prompts import TooLittleSeen
from loadtest.calibration.reckoning import reckon
from loadtest.calibration.stage import CHUNK_TOKENS, FleetShape, Stage, staged, write_adapters
from loadtest.calibration.text import lines
from loadtest.report import REPORTS
from loadtest.twin.measured import write_measured
from loadtest.twin.sequence import BatchShape
from loadtest.workloads.shape import TrafficShape


def main() -> int:
    words = _arguments()
    shape = FleetShape(model=words.model, engine=words.engine, slots=words.customers + 2, max_rows=words.max_rows)
    batch = BatchShape(
        max_rows=words.max_rows,
        chunk_tokens=words.chunk_tokens or CHUNK_TOKENS[words.engine],
        kv_tokens=words.kv_tokens,
    )
    traffic = calibration_traffic(words.customers, words.rate, words.seconds)
    conditions = {"engine": words.engine, "model": words.model.name, "replicas": str(shape.replicas),
                  "requests a second": f"{words.rate:g}"}  # fmt: skip
    try:
        with tempfile.TemporaryDirectory(prefix="lorafleet-calibration-") as folder:
            adapters = write_adapters(shape, Path(folder) / "adapters", words.customers)
            with staged(shape, Path(folder) / "fleet", adapters) as stage:
                run, probed = asyncio.run(_look(stage, traffic))
        measured = reckon([run], probed, batch, conditions)
    except (FleetDidNotStart, FleetFailed, HopFailed, TooLittleSeen) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    out = words.out or REPORTS / f"timings/{words.model.name}-{words.engine}.json"
    print(*lines(measured), f"written {write_measured(measured, out)}", sep="\n")
    return 0


async def _look(stage: Stage, traffic: TrafficShape) -> tuple[Run, Probed]:
    return await run_once(stage, traffic, "calibration"), await probe(stage)


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.calibration", description="How long does what take here?")
    words.add_argument("--model", type=Path, required=True, help="the base model's folder")
    words.add_argument("--engine", choices=sorted(CHUNK_TOKENS), default="torch")
    words.add_argument("--customers", type=int, default=6, help="with an adapter each")
    words.add_argument("--rate", type=float, default=8.0, help="requests a second, for both replicas together")
    words.add_argument("--seconds", type=float, default=30.0, help="of traffic")
    words.add_argument("--max-rows", type=int, default=32)
    words.add_argument("--chunk-tokens", type=int, help="of prompts in a step: the engine's policy")
    words.add_argument("--kv-tokens", type=int, default=65_536, help="of context that the KV cache holds")
    words.add_argument("--out", type=Path, help="the timing's file; reports/timings/MODEL-ENGINE.json")
    return words.parse_args()


if __name__ == "__main__":
    sys.exit(main())
