"""What the registry does with everything at once: compare every bucket with the database, and tell a long outbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from loadtest.report import Figure
from services.registry.desired_state import desired_state
from services.registry.io import outbox_rows
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.io.notes import value
from services.registry.relay import Relay, RelayPolicy
from shared.bus.memory import MemoryBroker
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics

R = TypeVar("R")

_OUTBOX_ROWS = 5_000
_POLICY = RelayPolicy(retry_s=0.5, batch_rows=200, keep_published_s=1e9)
_BREATH_S = 0.001


async def measure_whole(name: str, database: Database) -> dict[str, Figure]:
    broker = MemoryBroker()
    relay = Relay(broker.connect("registry"), database, SystemClock(), _POLICY, Meters(Metrics("registry")))
    figures = {}
    async with database.read() as connection:
        _, seconds, stall_s = await _timed(desired_state(connection))
    figures["desired_state_s"] = Figure(value=round(seconds, 3), unit="s")
    figures["desired_state_longest_stall_s"] = Figure(value=round(stall_s, 3), unit="s")
    _, seconds, stall_s = await _timed(relay._reconcile())
    figures["reconcile_s"] = Figure(value=round(seconds, 3), unit="s")
    figures["reconcile_longest_stall_s"] = Figure(value=round(stall_s, 3), unit="s")
    async with database.write() as connection:
        notes = [value(catalog.TENANT, TenantRecord(tenant_id="x"), f"t-{at}") for at in range(_OUTBOX_ROWS)]
        await outbox_rows.append(connection, notes, 0.0)
    _, seconds, _ = await _timed(relay._turn())
    figures["outbox_rows_per_s"] = Figure(value=round(_OUTBOX_ROWS / seconds), unit="rows/s")
    for key, figure in figures.items():
        print(f"  {key:30} {figure}", flush=True)
    return {f"{name}.{key}": figure for key, figure in figures.items()}


async def _timed(work: Awaitable[R]) -> tuple[R, float, float]:
    """The result, the seconds it took, and the longest time in which nobody else had a turn."""
    longest_s = 0.0

    async def breathe() -> None:
        nonlocal longest_s
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(_BREATH_S)
            longest_s = max(longest_s, time.perf_counter() - before_s - _BREATH_S)

    breathing = asyncio.create_task(breathe())
    await asyncio.sleep(0)
    began_s = time.perf_counter()
    try:
        result = await work
        return result, time.perf_counter() - began_s, longest_s
        return result, time.perf_counter() - began_s, longest_s
    finally:
        await asyncio.sleep(_BREATH_S)
        breathing.cancel()
