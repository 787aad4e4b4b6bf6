"""The RAM tier: adapters parsed by the engine, within a byte budget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from services.replica_worker.core.tiers import ByteBudget
from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable, HostAdapter
from services.replica_worker.tiers.disk import DiskTier
from services.replica_worker.tiers.errors import AdapterFailed
from services.replica_worker.tiers.ground import Ground
from services.replica_worker.tiers.shelf import Shelf
from services.replica_worker.tiers.single_flight import SingleFlight
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey

_READS_AT_ONCE = 2


class RamTier:
    def __init__(self, ground: Ground, disk: DiskTier, budget: ByteBudget[AdapterKey]) -> None:
        self.budget = budget
        self._shelf = Shelf("in RAM", budget, ground.clock)
        self.sizes: dict[AdapterKey, int] = {}
        """What adapters took here in bytes, whether or not they are still here."""
        self._engine = ground.engine
        self._on_change = ground.on_change
        self._disk = disk
        self._hosts: dict[AdapterKey, HostAdapter] = {}
        self._flights: SingleFlight[AdapterKey, HostAdapter] = SingleFlight()
        self._gate = asyncio.Semaphore(_READS_AT_ONCE)

    async def close(self) -> None:
        await self._flights.close()
        self._hosts.clear()

    def holds(self, key: AdapterKey) -> bool:
        return key in self._hosts

    async def hold(self, record: AdapterRecord) -> HostAdapter:
        """Read it from disk (fetched if need be) unless it is here. Raises AdapterUnavailable, AdapterFailed."""
        if (host := self._hosts.get(record.key)) is not None:
            self._shelf.touch(record.key)
            return host
        return await self._flights.run(record.key, lambda: self._bring(record))

    @contextmanager
    def pinned(self, key: AdapterKey) -> Iterator[None]:
        """While it is copied to a slot it stays, if it is here at all."""
        with self._shelf.pinned(key) if self.budget.holds(key) else nullcontext():
            yield

    def discard(self, key: AdapterKey) -> str | None:
        """Forget it; returns why not if it is being copied or read."""
        if self.budget.in_use(key) or self._flights.flies(key):
            return "it is being read or copied"
        if self.budget.holds(key):
            self.budget.drop(key)
            self._forget((key,))
        return None

    async def read_anew(self, record: AdapterRecord) -> HostAdapter:
        """From the file, whatever is here; the result is not kept. Raises AdapterUnavailable, AdapterFailed."""
        async with self._gate:
            return await self._read(record)

    async def _bring(self, record: AdapterRecord) -> HostAdapter:
        await self._disk.hold(record)
        async with self._gate:
            self._forget(await self._shelf.reserve(record.key, record.size_bytes))
            try:
                host = await self._read(record)
            except BaseException:
                self._shelf.cancel(record.key)
                raise
            self.sizes[record.key] = host.size_bytes
            self._forget(self._shelf.arrived(record.key, host.size_bytes))
        self._hosts[record.key] = host
        self._on_change(record.key)
        return host

    async def _read(self, record: AdapterRecord) -> HostAdapter:
        async with self._disk.checked(record) as path:
            try:
                return await self._engine.read(path, spec_of(record))
            except AdapterUnusable as error:
                raise AdapterFailed(f"the engine cannot apply {record.adapter_id}: {error}", elsewhere=False) from error

    def _forget(self, keys: tuple[AdapterKey, ...]) -> None:
        for key in keys:
            del self._hosts[key]
            self._on_change(key)


def spec_of(record: AdapterRecord) -> AdapterSpec:
    return AdapterSpec(
        adapter_id=record.adapter_id,
        digest=record.digest,
        base_model_hash=record.base_model_hash,
        rank=record.rank,
        alpha=record.alpha,
        target_modules=record.target_modules,
        use_rslora=record.use_rslora,
        rank_pattern=record.rank_pattern,
        alpha_pattern=record.alpha_pattern,
    )
