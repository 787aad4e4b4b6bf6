"""A replica over the timed engine in virtual time: seconds of arithmetic for minutes of traffic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.one_replica import OneReplica, Plan
from loadtest.virtual_time import LoopClock
from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from shared.messages.desired import AdapterRecord

BASE_HASH = "ba5e" * 16
STEP_S = 0.050
LOAD_S = 0.008
_FILE_BYTES = 800


def timed(slots: int, max_rows: int) -> TimedEngine:
    """Fleet A of the spec: 50 ms a step, 8,000 prompt tokens a second, 8 ms for an adapter over a serial link."""
    return TimedEngine(
        TimedPolicy(
            base_model_hash=BASE_HASH,
            slots=slots,
            max_rows=max_rows,
            step_s=STEP_S,
            link_bytes_per_s=_FILE_BYTES / LOAD_S,
        )
    )


def plan(folder: Path, model_folder: Path, **settings: int) -> Plan:
    return Plan(folder=folder, model_folder=model_folder, base_model_hash=BASE_HASH, settings=settings)


def write_adapters(folder: Path, count: int) -> list[tuple[Path, AdapterSpec]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / f"adapter-{at}", at) for at in range(count)]


def _write(path: Path, at: int) -> tuple[Path, AdapterSpec]:
    path.write_bytes(f"{at:08d}".encode() * (_FILE_BYTES // 8))
    spec = AdapterSpec(
        adapter_id=path.name, digest="", base_model_hash=BASE_HASH, rank=8, alpha=16.0, target_modules=("q_proj",)
    )
    return path, spec


@asynccontextmanager
async def world(
    folder: Path, model_folder: Path, adapters: int, **settings: int
) -> AsyncIterator[tuple[OneReplica, list[AdapterRecord]]]:
    engine = timed(settings["slots"], settings["max_rows"])
    replica = OneReplica(plan(folder, model_folder, **settings), engine, LoopClock())
    async with replica.running():
        yield replica, [await replica.register(*each) for each in write_adapters(folder / "files", adapters)]
