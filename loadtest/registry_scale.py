"""`make bench-registry`: what the registry asks of its database, at the size of a large fleet, into
reports/registry.json: how each question is answered on either database, and how long it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec

from infra.postgres.server import postgres_server
from loadtest.registry_fill import Filling, Volume
from loadtest.registry_plans import Plan, plan_of, sizes_of
from loadtest.registry_questions import QUESTIONS, Keys, Question
from loadtest.registry_statements import Statements, listening
from loadtest.registry_whole import measure_whole
from loadtest.report import Figure, write_report
from services.registry.io.changes import Changes
from services.registry.io.database import Database, DatabasePolicy

_PATIENT = DatabasePolicy(timeout_s=3600.0)
_SERVER = "shared_buffers = 1GB\nmaintenance_work_mem = 512MB\nmax_wal_size = 8GB\nwork_mem = 16MB\n"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A database that is full, and how many rows each of its tables has."""

    database: Database
    volume: Volume
    sizes: dict[str, int]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One question on one database: the times of single calls, and the plans of the statements behind it."""

    name: str
    times_ms: tuple[float, ...]
    plans: tuple[Plan, ...]

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.times_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def __str__(self) -> str:
        steps = "; ".join(step for plan in self.plans for step in plan.steps)
        faults = "; ".join(fault for plan in self.plans for fault in plan.faults)
        times = f"{self.name:22} p50 {self.quantile_ms(0.5):9.2f} ms  p95 {self.quantile_ms(0.95):9.2f} ms  "
        return times + (f"NO INDEX: {faults}" if faults else steps)


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.registry_scale")
    words.add_argument("--adapters", type=int, default=20_000)
    words.add_argument("--usage", type=int, default=10_000_000, help="rows of usage on PostgreSQL")
    words.add_argument("--sqlite-usage", type=int, default=1_000_000, help="rows of usage on SQLite")
    words.add_argument("--calls", type=int, default=50, help="of each question")
    given = words.parse_args()
    volumes = {
        "postgresql": Volume(adapters=given.adapters, usage=given.usage),
        "sqlite": Volume(adapters=given.adapters, usage=given.sqlite_usage),
    }
    figures: dict[str, Figure] = {}
    for name, volume in volumes.items():
        with _place(name) as url:
            figures |= asyncio.run(_measure(name, url, volume, given.calls))
    said = {name: f"{volume.adapters} adapters, {volume.usage} rows of usage" for name, volume in volumes.items()}
    print(f"written: {write_report('registry', figures, conditions={**said, 'calls': str(given.calls)})}")


@contextmanager
def _place(name: str) -> Iterator[str]:
    """The URL of an empty database."""
    if name == "postgresql":
        with postgres_server(_SERVER) as server:
            yield server.url()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite+aiosqlite:///{Path(folder)}/registry.db"


async def _measure(name: str, url: str, volume: Volume, calls: int) -> dict[str, Figure]:
    database = Database(url, Changes(), _PATIENT)
    await database.start()
    try:
        began_s = time.perf_counter()
        async with database.write() as connection:
            await Filling(connection, volume).everything()
        print(f"{name}: {volume.usage} rows of usage in {time.perf_counter() - began_s:.0f} s", flush=True)
        async with database.read() as connection:
            place = Place(database=database, volume=volume, sizes=await sizes_of(connection))
        figures: dict[str, Figure] = {}
        faults = 0
        for question in QUESTIONS:
            answered = await _answer(place, question, calls)
            print(f"  {answered}", flush=True)
            faults += any(plan.faults for plan in answered.plans)
            for share in (0.5, 0.95):
                key = f"{name}.{question.name}.p{round(share * 100)}_ms"
                figures[key] = Figure(value=round(answered.quantile_ms(share), 3), unit="ms")
        figures[f"{name}.without_index"] = Figure(value=float(faults), unit="questions", target="<= 0")
        return figures | await measure_whole(name, database)
    finally:
        await database.stop()


async def _answer(place: Place, question: Question, calls: int) -> Answered:
    times_ms, draws = [], Random(question.name)
    with listening() as statements:
        for _ in range(calls):
            keys = Keys(place.volume, draws)
            async with place.database.read() as connection:
                began_s = time.perf_counter()
                await question.ask(connection, keys)
                times_ms.append((time.perf_counter() - began_s) * 1000)
    plans = await _plans(place.database, statements, place.sizes)
    return Answered(name=question.name, times_ms=tuple(times_ms), plans=plans)


async def _plans(database: Database, statements: Statements, sizes: Mapping[str, int]) -> tuple[Plan, ...]:
    async with database.read() as connection:
        return tuple([await plan_of(connection, one.text, one.parameters, sizes) for one in statements.found.values()])


if __name__ == "__main__":
    main()
