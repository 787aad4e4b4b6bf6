"""Placement and whole workers on one bus in virtual time: who is told to hold what, and in which order it comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from loadtest.cold_replica import BASE_HASH, SETTINGS, STORE_BYTES_PER_S, STORE_LATENCY_S, registered
from loadtest.one_replica import Around, OneReplica, Plan
from loadtest.throttled_store import ThrottledStore
from loadtest.virtual_time import LoopClock
from services.placement.app import TURN_S, PlacementPolicy
from services.replica_worker.engine.timed.engine import TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import BASE_MODEL, TRAFFIC
from shared.messages.desired import AdapterRecord
from shared.messages.usage import PoolTraffic
from tests.simulation.placing import placement_on
from tests.simulation.speakers import base_model

_REPORT_S = 1.0


class Fleet:
    """The first of `records` is the busiest; nothing else says so but the traffic. Each replica has a link of its own
    to the store, in `links`."""

    def __init__(self, folder: Path, model_folder: Path, policy: PlacementPolicy) -> None:
        self.clock = LoopClock()
        self.links: dict[str, ThrottledStore] = {}
        self.records: list[AdapterRecord] = []
        self._folder = folder
        self._model_folder = model_folder
        self._broker = MemoryBroker()
        self._store = ThrottledStore(STORE_BYTES_PER_S, STORE_LATENCY_S, self.clock)
        self._registry = self._broker.connect("registry")
        self.placement = placement_on(self._broker.connect("placement"), self.clock, policy)
        self._ends = AsyncExitStack()

    @asynccontextmanager
    async def running(self, replica_ids: list[str], adapters: int) -> AsyncIterator[Fleet]:
        """Everything starts at once, with the registry's word on traffic and nothing on any disk."""
        async with self._ends:
            record = msgspec.structs.replace(base_model(), base_model_hash=BASE_HASH)
            await self._registry.state(BASE_MODEL).put(record, BASE_HASH)
            first = await self.join(replica_ids[0])
            self.records = await registered(first, adapters)
            random.Random(3).shuffle(self.records)
            await self._say_traffic()
            for replica_id in replica_ids[1:]:
                await self.join(replica_id)
            await self.placement.start()
            self._ends.push_async_callback(self.placement.stop)
            self._keep_doing(TURN_S, self.placement.turn)
            yield self

    async def join(self, replica_id: str) -> OneReplica:
        link = self.links[replica_id] = self._store.beside()
        plan = Plan(
            folder=self._folder / replica_id, model_folder=self._model_folder, base_model_hash=BASE_HASH,
            settings=SETTINGS, replica_id=replica_id,
        )  # fmt: skip
        engine = TimedEngine(TimedPolicy(base_model_hash=BASE_HASH, slots=SETTINGS["slots"]))
        replica = OneReplica(plan, engine, self.clock, Around(broker=self._broker, store=link))
        await self._ends.enter_async_context(replica.running())
        self._keep_doing(_REPORT_S, replica.replica.reporter.send)
        return replica

    async def until_read(self, replica_id: str, count: int) -> list[AdapterRecord]:
        """The first adapters that a replica fetched, in their order."""
        link = self.links[replica_id]
        while len(link.reads) < count:
            await self.clock.sleep_s(0.1)
        by_key = {record.store_key: record for record in self.records}
        return [by_key[key] for key in link.reads[:count]]

    async def _say_traffic(self) -> None:
        rates = {record.adapter_id: 40.0 / (rank + 1) for rank, record in enumerate(self.records)}
        pool_id = self.records[0].pool_id
        message = PoolTraffic(pool_id=pool_id, at_s=1.0, requests_per_s=rates)
        await self._registry.state(TRAFFIC).put(message, pool_id)

    def _keep_doing(self, every_s: float, do: Callable[[], Awaitable[None]]) -> None:
        async def again_and_again() -> None:
            while True:
                await do()
                await self.clock.sleep_s(every_s)

        task = asyncio.create_task(again_and_again())

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._ends.push_async_callback(end)
