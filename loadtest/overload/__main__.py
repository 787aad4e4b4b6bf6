"""`make bench-overload`: more requests than a fleet can answer, and connections that only wait, into
reports/overload.json. Timed replicas behind the real gateway, registry and bus."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import uvloop

from loadtest.calibration.stage import FleetShape, Stage, staged, write_adapters
from loadtest.driver.asking import Target, Wording, address_of, tenant_of
from loadtest.driver.planned import planned
from loadtest.driver.running import Limits, drive
from loadtest.overload.idle import idle_connections, resident_bytes
from loadtest.overload.plan import (
    CUSTOMERS,
    REPLICAS,
    TIMES,
    TOKENS_PER_WORD,
    Idle,
    Judged,
    Span,
    figures_of,
    judged,
    shape,
)
from loadtest.report import table, write_report

PARTS = ("sweep", "idle")
CONNECTIONS = 10_000


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.overload", description="Overload, and idle connections.")
    words.add_argument("--model", type=Path, required=True, help="a folder with a tokenizer")
    words.add_argument("--parts", default=",".join(PARTS), help="of sweep,idle")
    words.add_argument("--for", dest="for_s", type=float, default=25.0, help="seconds of each rate")
    words.add_argument("--connections", type=int, default=CONNECTIONS)
    given = words.parse_args()
    span = Span(for_s=given.for_s, warm_up_s=0.2 * given.for_s)
    fleet = FleetShape(
        model=given.model, engine="timed", replicas=REPLICAS, slots=CUSTOMERS, more=(("gateway_shed_late", "true"),)
    )
    with tempfile.TemporaryDirectory(prefix="lorafleet-overload-") as folder:
        adapters = write_adapters(fleet, Path(folder) / "adapters", CUSTOMERS)
        with staged(fleet, Path(folder) / "fleet", adapters) as stage:
            swept = {times: attempt(stage, times, span) for times in TIMES} if "sweep" in given.parts else {}
            idle = uvloop.run(_beside(stage, span, given.connections)) if "idle" in given.parts else None
    figures = figures_of(swept, idle)
    print(table(figures))
    print(f"written {write_report('overload', figures)}")


def attempt(stage: Stage, times: float, span: Span) -> Judged:
    found = uvloop.run(_attempt(stage, times, span))
    print(f"{times:g} x capacity: {found}", flush=True)
    return found


async def _attempt(stage: Stage, times: float, span: Span) -> Judged:
    keys = {tenant_of(customer.alias): customer.key for customer in stage.customers}
    target = Target(url=stage.fleet.connection.url, keys=keys)
    load = planned(shape(times, span), [customer.alias for customer in stage.customers])
    wording = Wording(tokens_per_word=TOKENS_PER_WORD, seed=int(10 * times))
    run = await drive(target, load, Limits(warm_up_s=span.warm_up_s), wording)
    return judged(run.seen, span)


async def _beside(stage: Stage, span: Span, connections: int) -> Idle:
    """The same load without them and beside them."""
    before = await _attempt(stage, TIMES[0], span)
    pid = stage.fleet.pid("gateway")
    bytes_before = resident_bytes(pid)
    async with idle_connections(address_of(stage.fleet.connection.url), connections) as opened:
        grown_bytes = resident_bytes(pid) - bytes_before
        beside = await _attempt(stage, TIMES[0], span)
    return Idle(connections=opened, grown_bytes=grown_bytes, before=before, beside=beside)


if __name__ == "__main__":
    main()
