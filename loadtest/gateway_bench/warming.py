"""Waiting until a fleet is as it is to be measured."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import httpx

from loadtest.gateway_bench.machine import Running
from shared.bus.port import Bus, Ids
from shared.contracts.catalog import REPLICA_REPORT, REPLICA_RESIDENCY
from shared.messages.reports import ReplicaReport, Residency

_POLL_S = 0.05
_DEADLINE_S = 60.0
_LOOK_S = 1.0


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
                await self._more(process)

    async def until_held(self, copies: int, within_s: float, process: Running) -> None:
        """So many copies of adapters are in RAM or in a slot, all replicas together. Raises RuntimeError once the
        process has ended, or if it takes longer than that."""
        ends_s = time.monotonic() + within_s
        while (held := self.copies()) < copies:
            if time.monotonic() > ends_s:
                raise RuntimeError(f"after {within_s:g} s replicas hold {held:,} adapters in RAM, not {copies:,}")
            await self._more(process)

    def copies(self) -> int:
        return sum(tier in ("ram", "gpu") for held in self._held.values() for tier in held.values())

    async def _more(self, process: Running) -> None:
        """They may say more, or nothing any more."""
        _alive(process)
        self._news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), _LOOK_S)

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
