"""`make fleet-a-live`: 26 replicas, 5,000 aliases, 40 requests a second, in real time on this machine."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from loadtest.driver import text
from loadtest.driver.asking import Target, Wording
from loadtest.driver.figures import Asked, summary
from loadtest.driver.planned import planned
from loadtest.driver.running import Limits, drive
from loadtest.fleet_live.figures import figures
from loadtest.fleet_live.stage import ADAPTER_BYTES, ADAPTERS, REPLICAS, LiveFleet, live_fleet
from loadtest.gateway_bench.machine import cpu_s
from loadtest.gateway_bench.records import Cast
from loadtest.report import table, write_report
from loadtest.twin.figures import Figures
from loadtest.twin.figures import figures as twin_figures
from loadtest.twin.presets import Size, fleet_a
from loadtest.twin.twin import Twin
from loadtest.workloads.shape import TrafficShape
from shared.base_model import base_model_hash

_TOKENS_PER_WORD = 5.6
"""The tiny model's tokenizer knows letters, and the driver's words have about five each."""


def _words() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m loadtest.fleet_live", description=__doc__)
    words.add_argument("--model", type=Path, required=True, help="a model folder: its tokenizer is all that is used")
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--warm-up-minutes", type=float, default=1.0, help="of these minutes, those that do not count")
    words.add_argument("--rate", type=float, default=40.0)
    words.add_argument("--seed", type=int, default=1)
    return words.parse_args()


async def _live(given: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """The driver's summary, and what each group of processes took of a processor."""
    cast = Cast(
        base_model_hash=base_model_hash(given.model), key=f"sk-{secrets.token_hex(16)}", customers=ADAPTERS,
        adapter_bytes=ADAPTER_BYTES,
    )  # fmt: skip
    shape = TrafficShape(customers=ADAPTERS, rate_per_s=given.rate, for_s=60 * given.minutes, seed=given.seed)
    async with live_fleet(folder, given.model, cast) as fleet:
        print(f"{REPLICAS} replicas hold {ADAPTERS:,} adapters", flush=True)
        before, began_s, own_s = _spent_s(fleet), time.monotonic(), time.process_time()
        run = await drive(
            Target(url=fleet.url, key=cast.key), planned(shape, cast.aliases),
            Limits(warm_up_s=60 * given.warm_up_minutes), Wording(tokens_per_word=_TOKENS_PER_WORD, seed=given.seed),
        )  # fmt: skip
        took_s = time.monotonic() - began_s
        share = {name: (spent_s - before[name]) / took_s for name, spent_s in _spent_s(fleet).items()}
        share["driver"] = (time.process_time() - own_s) / took_s
    return summary(run, Asked(request_rate=given.rate)), share


def _spent_s(fleet: LiveFleet) -> dict[str, float]:
    return {name: cpu_s(pids) for name, pids in fleet.pids.items()}


def _twin(given: argparse.Namespace) -> Figures:
    """The same fleet and traffic in virtual time, by the specification's own times."""
    size = Size(
        rate_per_s=given.rate, minutes=given.minutes, warm_up_minutes=given.warm_up_minutes, seed=given.seed
    )  # fmt: skip
    return twin_figures(Twin(fleet_a(size)).run())


def main() -> None:
    given = _words()
    with tempfile.TemporaryDirectory() as folder:
        live, share = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(_live(given, Path(folder)))
    print(text.lines(live), flush=True)
    found = figures(live, _twin(given), share)
    print(table(found))
    print(f"written {write_report('fleet_a_live', found)}")


if __name__ == "__main__":
    main()
