"""Waiting until a fleet is as it is to be measured."""

from __future__ import annotations

import asyncio

import httpx

from loadtest.gateway_bench.machine import Running
from shared.bus.port import Bus, Ids
from shared.contracts.catalog import REPLICA_REPORT, REPLICA_RESIDENCY
from shared.messages.reports import ReplicaReport, Residency

_POLL_S = 0.05
_DEADLINE_S = 60.0


class Warming:
    """What replicas say of themselves, heard from the beginning. `bus` is of somebody who reads their reports."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ready: set[str] = set()
        self._held: dict[str, dict[str, str]] = {}
        self._news = asyncio.Event()

    async def start(self) -> None:
        await self._bus.subscribe(REPLICA_REPORT, self._on_report)
        await self._bus.subscribe(REPLICA_RESIDENCY, self._on_residency)

    async def until(self, replicas: int, adapters: int, tier: str, process: Running) -> None:
        """So many replicas of this process serve, and each has so many adapters in this tier. Raises RuntimeError once
        it has ended, TimeoutError."""
        async with asyncio.timeout(_DEADLINE_S):
            while not (len(self._ready) >= replicas and self._warm(adapters, tier) >= replicas):
                _alive(process)
                self._news.clear()
                await asyncio.wait({asyncio.ensure_future(self._news.wait())}, timeout=1.0)

    def _warm(self, adapters: int, tier: str) -> int:
        if not adapters:
            return len(self._ready)
        return sum(list(held.values()).count(tier) >= adapters for held in self._held.values())

    async def _on_report(self, report: ReplicaReport, ids: Ids) -> None:
        if report.ready:
            self._ready.add(report.replica_id)
        self._news.set()

    async def _on_residency(self, told: Residency, ids: Ids) -> None:
        held = self._held.setdefault(told.replica_id, {})
        held.update((entry.adapter_id, entry.tier) for entry in told.entries)
        self._news.set()


async def until_answered(port: int, process: Running, path: str = "/readyz") -> None:
    """Raises RuntimeError once the process that is to answer has ended, TimeoutError."""
    async with asyncio.timeout(_DEADLINE_S), httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                if (await http.get(f"http://127.0.0.1:{port}{path}")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            _alive(process)
            await asyncio.sleep(_POLL_S)


def _alive(process: Running) -> None:
    if process.exited():
        raise RuntimeError(f"{process.name} ended: {process.last_words()} (log: {process.log})")
