"""A replica of fleet A with nothing on its disk, in virtual time, and clients that come again when told to.

The worker is the real one, its engine the timed one, and its store a link. One byte here stands for 10 kB there, so
that 80 GB of adapters fit on a disk.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.one_replica import Around, Ask, OneReplica, Plan, Told
from loadtest.throttled_store import ThrottledStore
from loadtest.virtual_time import LoopClock
from services.replica_worker.core.pace import Pace
from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from shared.bus.memory import MemoryBroker
from shared.messages.desired import AdapterRecord

BASE_HASH = "ba5e" * 16
REPLICA_ID = "replica-1"
SCALE = 10_000
"""So many bytes are one byte here."""
ADAPTER_BYTES = 80_000_000 // SCALE
STORE_BYTES_PER_S = 200e6 / SCALE
STORE_LATENCY_S = 0.1
DEADLINE_S = 60.0
"""In which a gateway wants the first token."""
SETTINGS = {
    "slots": 250,
    "max_rows": 32,
    "queue_limit": 256,
    "ram_budget_bytes": 31_000_000_000 // SCALE,
    "disk_budget_bytes": 64_000_000_000 // SCALE,
}
_LOOK_S = 0.25


@asynccontextmanager
async def cold_replica(folder: Path, model_folder: Path) -> AsyncIterator[tuple[OneReplica, ThrottledStore]]:
    """A started replica with nothing on its disk."""
    clock = LoopClock()
    store = ThrottledStore(STORE_BYTES_PER_S, STORE_LATENCY_S, clock)
    engine = TimedEngine(TimedPolicy(base_model_hash=BASE_HASH, slots=SETTINGS["slots"], link_bytes_per_s=10e9 / SCALE))
    plan = Plan(
        folder=folder,
        model_folder=model_folder,
        base_model_hash=BASE_HASH,
        settings=SETTINGS,
        replica_id=REPLICA_ID,
    )
    around = Around(broker=MemoryBroker(), store=store)
    async with OneReplica(plan, engine, clock, around).running() as replica:
        replica.replica.loader.disk.pace = Pace(STORE_BYTES_PER_S)
        yield replica, store


async def registered(replica: OneReplica, count: int) -> list[AdapterRecord]:
    return [await replica.register_bytes(_content(at), _spec(at)) for at in range(count)]


class Client:
    """Comes again up to a quarter later than it was told to, so that those who were refused at once do not come at
    once again."""

    def __init__(
        self, replica: OneReplica, name: str, record: AdapterRecord, draw: random.Random, *, patient: bool
    ) -> None:
        self._replica = replica
        self._name = name
        self._record = record
        self._draw = draw
        self._patient = patient

    async def run(self) -> list[Told]:
        """Every try, until one was not refused."""
        tries: list[Told] = []
        while True:
            tries.append(await self._replica.run(self._ask(len(tries))))
            if tries[-1].failure != "overloaded" or not self._patient:
                return tries
            await self._replica.clock.sleep_s((tries[-1].retry_after_s or 1.0) * (1.0 + self._draw.random() / 4))

    def _ask(self, at: int) -> Ask:
        name, record = f"{self._name}-{at}", self._record
        return Ask(request_id=name, tenant_id=record.adapter_id, max_tokens=8, record=record, deadline_s=DEADLINE_S)


class Peaks:
    """The most that was seen of what has a bound."""

    def __init__(self, replica: OneReplica) -> None:
        self.waiting = self.ram_bytes = self.disk_bytes = 0
        self._replica = replica

    async def watch(self) -> None:
        loader, generation = self._replica.replica.loader, self._replica.replica.generation
        while True:
            self.waiting = max(self.waiting, generation.waiting)
            self.ram_bytes = max(self.ram_bytes, loader.ram.budget.used_bytes)
            self.disk_bytes = max(self.disk_bytes, loader.disk.budget.used_bytes)
            await self._replica.clock.sleep_s(_LOOK_S)


def _content(at: int) -> bytes:
    return f"{at:08d}".encode() * (ADAPTER_BYTES // 8)


def _spec(at: int) -> AdapterSpec:
    return AdapterSpec(
        adapter_id=f"adapter-{at:04d}",
        digest="",
        base_model_hash=BASE_HASH,
        rank=16,
        alpha=32.0,
        target_modules=("q_proj",),
    )
