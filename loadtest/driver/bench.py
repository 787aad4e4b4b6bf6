"""`make bench-driver`: what the load tool itself takes, into reports/driver.json.

A load tool that is busy measures itself. So it is asked what it costs beside a server with nothing behind it, which has
the other core: paced as a fleet answers, and flooded as no fleet does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import uvloop

from loadtest.driver.asking import Target, Wording, Writer, address_of
from loadtest.driver.figures import Asked, summary
from loadtest.driver.planned import Planned, planned
from loadtest.driver.running import Limits, drive
from loadtest.report import Figure, table, write_report
from loadtest.workloads.shape import Fixed, Lengths, Steady, TrafficShape

ALIASES = tuple(f"acme-{at}/bare:prod" for at in range(200))


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A load on the bare server, whose streams have a token every `tick_ms`; 0: as fast as they are read."""

    name: str
    rate_per_s: float
    tokens: int
    tick_ms: float
    streams: int = 4_096


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    figures: dict[str, Any]
    cpu_s: float
    wall_s: float

    @property
    def cpu_us_per_token(self) -> float:
        tokens: int = self.figures["total_output_tokens"]
        return 1e6 * self.cpu_s / tokens


PACED = Case(name="paced", rate_per_s=40.0, tokens=250, tick_ms=25.0)
BUSY = Case(name="thousands", rate_per_s=320.0, tokens=250, tick_ms=50.0)
FLOODED = Case(name="flooded", rate_per_s=2_000.0, tokens=2_000, tick_ms=0.0, streams=64)
ONE_TOKEN = Case(name="one_token", rate_per_s=1_000.0, tokens=1, tick_ms=0.0)


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.driver.bench", description="What the load tool takes.")
    words.add_argument("--for", dest="for_s", type=float, default=20.0, help="seconds of each case")
    for_s = words.parse_args().for_s
    found = {case.name: measure(case, for_s) for case in (PACED, BUSY, FLOODED, ONE_TOKEN)}
    figures = {**figures_of(found), "cpu_us_per_token.only_reading": _figure(only_reading(for_s), "us")}
    print(table(figures))
    print(f"written {write_report('driver', figures)}")


def measure(case: Case, for_s: float) -> Cost:
    """Raises ValueError if a request failed: then nothing was measured."""
    shape = TrafficShape(
        customers=len(ALIASES),
        rate_per_s=case.rate_per_s,
        for_s=for_s if case.tick_ms else for_s / 4,
        arrivals=Steady(),
        lengths=Lengths(prompt=Fixed(tokens=100), output=Fixed(tokens=case.tokens)),
    )
    with _bare_server(case.tick_ms) as url, _own_core():
        before_s, began_s = time.process_time(), time.monotonic()
        run = uvloop.run(drive(Target(url=url), planned(shape, ALIASES), Limits(most_streams=case.streams)))
        cost_s, wall_s = time.process_time() - before_s, time.monotonic() - began_s
    figures = summary(run, Asked(request_rate=case.rate_per_s))
    if figures["failed"]:
        raise ValueError(f"{case.name}: {figures['failures']} {figures['failure_reasons']}")
    return Cost(figures=figures, cpu_s=cost_s, wall_s=wall_s)


def only_reading(for_s: float) -> float:
    """CPU us per token of a client on the same loop that reads what comes and does nothing: what the kernel takes."""
    with _bare_server(PACED.tick_ms) as url, _own_core():
        before_s = time.process_time()
        pieces = uvloop.run(_Reading(url).run(for_s))
        return 1e6 * (time.process_time() - before_s) / pieces


class _Reading(asyncio.Protocol):
    """One stream after the other as they come in the paced case; each connection asks once."""

    def __init__(self, url: str) -> None:
        self._address = address_of(url)
        asked = Planned(at_s=0.0, alias=ALIASES[0], prompt_tokens=100, max_tokens=PACED.tokens)
        self._request = Writer(Target(url=url), Wording()).written(asked, 0)
        self._pieces = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, piece: bytes) -> None:
        self._pieces += 1

    async def run(self, for_s: float) -> int:
        loop, opened = asyncio.get_running_loop(), []
        for _ in range(int(for_s * PACED.rate_per_s)):
            opened.append(await loop.create_connection(lambda: self, self._address.host, self._address.port))
            await asyncio.sleep(1 / PACED.rate_per_s)
        await asyncio.sleep(PACED.tokens * PACED.tick_ms / 1000)
        for transport, _ in opened:
            transport.abort()
        return self._pieces


def figures_of(found: dict[str, Cost]) -> dict[str, Figure]:
    paced, busy, flooded, one = (found[case.name] for case in (PACED, BUSY, FLOODED, ONE_TOKEN))
    delays = {case.name: found[case.name].figures["p99_schedule_delay_ms"] for case in (PACED, BUSY)}
    return {
        "cpu_us_per_token.paced": _figure(paced.cpu_us_per_token, "us", "<= 15"),
        "cpu_us_per_token.thousands": _figure(busy.cpu_us_per_token, "us"),
        "streams.thousands": _figure(busy.figures["max_concurrent_requests"], "", ">= 2000"),
        "core_share.thousands": _figure(busy.cpu_s / busy.wall_s, ""),
        "tokens_per_s.flooded": _figure(flooded.figures["output_throughput"], "1/s", ">= 100000"),
        "cpu_us_per_request.one_token": _figure(one.cpu_us_per_token, "us"),
        **{
            f"schedule_delay_ms.p99.{name}": _figure(delay_ms, "ms", "<= 1" if name == "paced" else None)
            for name, delay_ms in delays.items()
        },
    }


def _figure(value: float, unit: str, target: str | None = None) -> Figure:
    return Figure(value=float(f"{value:.4g}"), unit=unit, target=target)


@contextmanager
def _bare_server(tick_ms: float) -> Iterator[str]:
    """Its address; on the last of this process' cores."""
    core = str(max(os.sched_getaffinity(0)))
    argv = ["taskset", "-c", core, sys.executable, "-m", "loadtest.driver.bare_server", "--tick-ms", str(tick_ms)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


@contextmanager
def _own_core() -> Iterator[None]:
    """The first of this process' cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main()
